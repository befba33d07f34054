// kubelet-dial registers a plugin as the kubelet does: it dials the bare path of the registration socket (so that gRPC makes an :authority of that path,
// percent-encoded), asks GetInfo, and reports the result to the plugin.
//
// Prints GetInfo's answer as one line of JSON. Exit status: 0 both calls answered, 1 not, 2 wrong usage.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

const service = "/pluginregistration.Registration/"

// info is PluginInfo of pluginregistration v1.
type info struct {
	Type     string   `json:"type"`
	Name     string   `json:"name"`
	Endpoint string   `json:"endpoint"`
	Versions []string `json:"versions"`
}

func parse(raw []byte) (*info, error) {
	got := &info{Versions: []string{}}
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		raw = raw[n:]
		if kind != protowire.BytesType {
			return nil, fmt.Errorf("field %d is no text", number)
		}
		value, n := protowire.ConsumeString(raw)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		raw = raw[n:]
		switch number {
		case 1:
			got.Type = value
		case 2:
			got.Name = value
		case 3:
			got.Endpoint = value
		case 4:
			got.Versions = append(got.Versions, value)
		default:
			return nil, fmt.Errorf("field %d is unknown", number)
		}
	}
	return got, nil
}

// call sends raw protobuf and returns raw protobuf: an empty message keeps what it does not know.
func call(ctx context.Context, c *grpc.ClientConn, method string, request []byte) ([]byte, error) {
	var in, out emptypb.Empty
	in.ProtoReflect().SetUnknown(request)
	if err := c.Invoke(ctx, service+method, &in, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return proto.Marshal(&out)
}

func run(socket, refusal string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	// As pkg/kubelet/pluginmanager/operationexecutor does; grpc.NewClient would want a scheme and send another authority.
	c, err := grpc.DialContext(ctx, socket, //nolint:staticcheck
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithBlock(), //nolint:staticcheck
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}))
	if err != nil {
		return fmt.Errorf("dialling %s: %w", socket, err)
	}
	defer c.Close()
	raw, err := call(ctx, c, "GetInfo", nil)
	if err != nil {
		return err
	}
	got, err := parse(raw)
	if err != nil {
		return fmt.Errorf("GetInfo: %w", err)
	}
	line, err := json.Marshal(got)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	// RegistrationStatus: plugin_registered 1, error 2.
	status := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	if refusal != "" {
		status = protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), refusal) // not registered: false is left out
	}
	_, err = call(ctx, c, "NotifyRegistrationStatus", status)
	return err
}

func main() {
	refusal := flag.String("refuse", "", "tell the plugin that it is not registered, for this reason")
	timeout := flag.Duration("timeout", 10*time.Second, "for all of it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: kubelet-dial [-refuse REASON] [-timeout DURATION] SOCKET")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *refusal, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet-dial:", err)
		os.Exit(1)
	}
}
