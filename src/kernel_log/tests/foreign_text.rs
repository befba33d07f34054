//! Texts that the kernel prints for others: any user chooses a program's name, a path or a mount
//! option, and none of them is evidence.
//!
//! The fuzz target of the same name uses this file too.

/// The records in which the kernel quotes `text`, as an unprivileged user, a container or a program
/// with a capability of its own can make it.
pub(crate) fn records(text: &str) -> Vec<String> {
    // TASK_COMM_LEN, NF_LOG_PREFIXLEN, NAME_MAX.
    let (comm, rest) = split(text, 15);
    let (prefix, _) = split(text, 127);
    let (file, _) = split(text, 255);
    // dev_valid_name() (net/core/dev.c), IFNAMSIZ.
    let interface: String =
        text.chars().filter(|one| !one.is_whitespace() && !matches!(one, '/' | ':')).collect();
    let (interface, _) = split(&interface, 15);
    vec![
        format!("{interface}: renamed from eth0"),
        format!("{interface}: port 1({interface}) entered disabled state"),
        format!("device {interface} entered promiscuous mode"),
        format!("IPv6: ADDRCONF(NETDEV_UP): {interface}: link is not ready"),
        format!("{interface} speed is unknown, defaulting to 1000"),
        format!("cgroup: fork rejected by pids controller in /{text}"),
        format!("cgroup: Unknown subsys name '{text}'"),
        format!("cgroup: {comm} (4242) created nested cgroup for controller \"memory\""),
        format!("nf_conntrack: unknown parameter '{text}' ignored"),
        format!("`{text}' invalid for parameter `max_loop'"),
        format!("nfs: server {text} not responding, timed out"),
        format!("CIFS: VFS: \\\\{text} Send error in SessSetup = -13"),
        format!("9pnet: Could not find request transport: {text}"),
        format!("input: {text} as /devices/pci0000:00/0000:00:14.0/usb1/1-1/input/input7"),
        format!(
            "hid-generic 0003:046D:C31C.0001: input,hidraw0: USB HID v1.10 Keyboard [{text}] on usb-1/input0"
        ),
        format!("binfmt_misc: register: failed to install interpreter file {text}"),
        format!("exFAT-fs (loop0): Volume was not properly unmounted. Label {text}"),
        format!("ISOFS: changing to secondary root of {text}"),
        format!(
            "{comm}[4242]: segfault at 0 ip 0000559e5ad7a139 sp 00007ffc5c3d8f40 error 6 in {rest}[559e5ad7a000+1000]"
        ),
        format!(
            "x[4242]: segfault at 0 ip 0000559e5ad7a139 sp 00007ffc5c3d8f40 error 6 in {file}[139,559e5ad7a000+1000] likely on CPU 0 (core 0, socket 0)"
        ),
        format!(
            "{comm}[4242]: bad frame in rt_sigreturn frame:00007ffc ip:7f sp:7ffc orax:0 in {rest}[7f00+1000]"
        ),
        format!(
            "traps: {comm}[4242] general protection fault ip:559e sp:7ffc error:0 in {rest}[559e5ad7a000+1000]"
        ),
        format!(
            "{comm}[4242] trap divide error ip:559e sp:7ffc error:0 in {rest}[559e5ad7a000+1000]"
        ),
        format!("traps: {comm}[4242] trap int3 ip:559e sp:7ffc error:0 in {file}[559e+1000]"),
        format!(
            "audit: type=1107 audit(1700000000.123:45): pid=1 uid=65532 auid=4294967295 ses=4294967295 msg='{text}'"
        ),
        format!(
            "audit: type=1701 audit(1700000000.123:45): auid=1 uid=1 pid=7 comm=\"{comm}\" exe=\"/tmp/{file}\" sig=11 res=1"
        ),
        format!("tmpfs: Unknown parameter '{text}'"),
        format!("overlay: Unknown parameter '{text}'"),
        format!("overlayfs: failed to resolve '{text}': -2"),
        format!("fuse: Bad value for '{text}'"),
        format!("{prefix}IN=eth0 OUT= MAC=00:00 SRC=10.0.0.1 DST=10.0.0.2 LEN=60 PROTO=TCP"),
        format!("systemd[1]: {text}"),
        format!("systemd-journald[99]: {text}"),
        format!("usb 1-1: Product: {text}"),
        format!("usb 1-1: Manufacturer: {text}"),
        format!("usb 1-1: SerialNumber: {text}"),
        format!("{comm} (4242): drop_caches: 3"),
        format!(
            "{comm} invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0"
        ),
        format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={text},mems_allowed=0,task_memcg=/{text},task={comm},pid=4242,uid=65532"
        ),
        format!(
            "Memory cgroup out of memory: Killed process 4242 ({comm}) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:65532 pgtables:8kB oom_score_adj:0"
        ),
        format!("Memory cgroup stats for /{text}:"),
        format!(
            "{comm}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null),cpuset=/"
        ),
        format!("{comm}: vmemmap alloc failure: order:9"),
        format!("process '{text}' started with executable stack"),
        format!("warning: process `{comm}' used the deprecated sysctl system call with 1."),
        format!(
            "capability: warning: `{comm}' uses deprecated v2 capabilities in a way that may be insecure"
        ),
        format!("{comm} uses obsolete (PF_INET,SOCK_PACKET)"),
        format!(
            "mmap: {comm} (4242) uses deprecated remap_file_pages() syscall. See Documentation/mm/remap_file_pages.rst."
        ),
        format!("INFO: task {comm}:4242 blocked for more than 120 seconds."),
        format!("task:{comm} state:D stack:0 pid:4242 ppid:1 flags:0x00000000"),
        format!("CPU: 0 PID: 4242 Comm: {comm} Not tainted 6.1.0 #1"),
        format!("rcu: INFO: rcu_sched self-detected stall on CPU {comm}"),
        format!("ptrace attach of \"{text}\"[4242] was attempted by \"{text}\"[4243]"),
        format!("{comm}: attempt to access beyond the end\n{rest}"),
    ]
}

/// The text's first bytes, at most `length`, and the rest.
fn split(text: &str, length: usize) -> (&str, &str) {
    let mut end = text.len().min(length);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.split_at(end)
}
