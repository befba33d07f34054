// announce registers a CSI driver that serves a socket with the kubelet, as the standard node-driver-registrar does, until it is stopped: a registrar that is
// not ours.
//
//	announce -name DRIVER -endpoint /path/to/csi.sock -folder /var/lib/kubelet/plugins_registry
//
// Each call of the kubelet is a line on standard output. Exit status: 0 stopped, 1 refused by the kubelet or not to be served, 2 wrong usage.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// registration is the server of pluginregistration v1, whose messages are written and read by hand: an Empty carries any fields as unknown ones.
type registration struct {
	info    []byte
	refused chan string
}

func method(name string, answer func(*registration, []byte) []byte) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(of any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			request, response := &emptypb.Empty{}, &emptypb.Empty{}
			if err := decode(request); err != nil {
				return nil, err
			}
			response.ProtoReflect().SetUnknown(answer(of.(*registration), request.ProtoReflect().GetUnknown()))
			return response, nil
		},
	}
}

func (r *registration) getInfo([]byte) []byte {
	fmt.Println("asked for its name")
	return r.info
}

// notify reads RegistrationStatus: 1 whether it was registered, 2 why not.
func (r *registration) notify(raw []byte) []byte {
	registered, why := false, "no reason given"
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			break
		}
		raw = raw[n:]
		switch {
		case number == 1 && kind == protowire.VarintType:
			value, _ := protowire.ConsumeVarint(raw)
			registered = value != 0
		case number == 2 && kind == protowire.BytesType:
			why, _ = protowire.ConsumeString(raw)
		}
		if n = protowire.ConsumeFieldValue(number, kind, raw); n < 0 {
			break
		}
		raw = raw[n:]
	}
	if registered {
		fmt.Println("registered")
	} else {
		r.refused <- why
	}
	return nil
}

func field(into []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(into, number, protowire.BytesType), text)
}

func main() {
	name := flag.String("name", "", "the driver's name")
	endpoint := flag.String("endpoint", "", "its socket, as the kubelet names it")
	folder := flag.String("folder", "", "the kubelet's plugins_registry")
	flag.Parse()
	if *name == "" || *endpoint == "" || *folder == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "announce:", err)
		os.Exit(1)
	}
	// 1 its kind, 2 its name, 3 its socket, 4 the versions that it speaks.
	info := field(field(field(field(nil, 1, "CSIPlugin"), 2, *name), 3, *endpoint), 4, "1.0.0")
	r := &registration{info: info, refused: make(chan string, 1)}
	socket := filepath.Join(*folder, *name+"-reg.sock")
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "pluginregistration.Registration",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{method("GetInfo", (*registration).getInfo), method("NotifyRegistrationStatus", (*registration).notify)},
	}, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-stopped:
		server.Stop()
	case why := <-r.refused:
		fail(fmt.Errorf("the kubelet refuses %s: %s", *name, why))
	case err := <-served:
		fail(err)
	}
}
