//! The filter, by an interpreter of classic BPF.

use super::*;

const ALLOW: u32 = SECCOMP_RET_ALLOW;
const ABSENT: u32 = SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
const NOTED: u32 = SECCOMP_RET_USER_NOTIF;
const PID: u32 = 4711;
const SOCKET: u32 = 3;

fn input(listener: bool) -> FilterInput {
    FilterInput { pid: PID, socket: SOCKET, listener, threads_only: false }
}

#[test]
fn without_a_control_group_it_starts_threads_and_no_process() {
    let filter = filter(FilterInput { threads_only: true, ..input(true) });
    let call =
        |number: c_long, argument| run(&filter, ARCHITECTURE, number as u32, first(argument));
    // What glibc uses for a thread, for fork(3) and for posix_spawn(3).
    assert_eq!(call(libc::SYS_clone, 0x003d_0f00), ALLOW);
    assert_eq!(call(libc::SYS_clone, 0x0120_0011), NOTED);
    assert_eq!(call(libc::SYS_clone, 0x4111), NOTED);
    assert_eq!(call(libc::SYS_clone, 0x003d_0f00 | 0x1000_0000), NOTED);
    for number in FORKS {
        assert_eq!(call(*number, 0), NOTED);
        assert!(is_fork(*number as i32));
    }
    assert!(is_fork(libc::SYS_clone as i32) && !is_fork(libc::SYS_read as i32));
}

/// What the kernel returns for a call.
fn run(filter: &[sock_filter], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = [number.to_le_bytes(), architecture.to_le_bytes()].concat();
    data.extend([0; 8]);
    data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    let (mut at, mut loaded) = (0, 0);
    loop {
        let step = filter[at];
        let code = u32::from(step.code);
        let test = match code {
            _ if code == BPF_LD | BPF_W | BPF_ABS => {
                let offset = step.k as usize;
                loaded = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap());
                at += 1;
                continue;
            }
            _ if code == BPF_RET | BPF_K => return step.k,
            _ if code == BPF_JMP | BPF_JEQ | BPF_K => loaded == step.k,
            _ if code == BPF_JMP | BPF_JGE | BPF_K => loaded >= step.k,
            _ if code == BPF_JMP | BPF_JSET | BPF_K => loaded & step.k != 0,
            _ => panic!("unknown instruction {code:#x}"),
        };
        at += 1 + usize::from(if test { step.jt } else { step.jf });
    }
}

fn first(argument: u64) -> [u64; 6] {
    [argument, 0, 0, 0, 0, 0]
}

#[test]
fn listed_calls_are_allowed_and_all_others_are_absent() {
    let filter = filter(input(true));
    // BPF_MAXINSNS.
    assert!(filter.len() < 4096);
    let call = |number: c_long, arguments| run(&filter, ARCHITECTURE, number as u32, arguments);
    for number in ALLOWED.iter().chain(ALLOWED_OLD).chain(FORKS) {
        assert_eq!(call(*number, first(0)), ALLOW, "{number}");
    }
    for number in OPTIONAL {
        assert_eq!(call(*number, first(0)), ABSENT, "{number}");
    }
    for number in [
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bpf,
        libc::SYS_keyctl,
        libc::SYS_io_uring_setup,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_mount,
        libc::SYS_fsopen,
        libc::SYS_splice,
        libc::SYS_seccomp,
        libc::SYS_setsid,
        libc::SYS_setpgid,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_pidfd_open,
        libc::SYS_unlinkat,
        libc::SYS_fchmodat,
        libc::SYS_setresuid,
        libc::SYS_shmget,
        libc::SYS_mq_open,
    ] {
        assert_eq!(call(number, first(0)), NOTED, "{number}");
    }
    assert_eq!(call(c_long::from(FIRST_UNKNOWN), first(0)), ABSENT);
    assert_eq!(call(4000, first(0)), ABSENT);
}

#[test]
fn arguments_decide_about_clone_prctl_and_signals() {
    let filter = filter(input(true));
    let call = |number: c_long, arguments| run(&filter, ARCHITECTURE, number as u32, arguments);
    // A thread of glibc 2.36, and a child of fork(3).
    assert_eq!(call(libc::SYS_clone, first(0x003d_0f00)), ALLOW);
    assert_eq!(call(libc::SYS_clone, first(0x0120_0011)), ALLOW);
    for flag in 0..32 {
        let bits = 1 << flag;
        let expected = if u64::from(FORBIDDEN_CLONE_FLAGS) & bits == 0 { ALLOW } else { NOTED };
        assert_eq!(call(libc::SYS_clone, first(bits | 17)), expected);
    }
    // The kernel ignores the upper half of all these arguments.
    let upper = 1 << 32;
    let own = u64::from(PID);
    for kill in [libc::SYS_kill, libc::SYS_tgkill] {
        assert_eq!(call(kill, first(own)), ALLOW);
        assert_eq!(call(kill, first(own + upper)), ALLOW);
        for other in [0, 1, own + 1, u64::MAX, u64::MAX << 32 | 1] {
            assert_eq!(call(kill, first(other)), NOTED, "{other}");
        }
    }
    assert_eq!(call(libc::SYS_prlimit64, first(0)), ALLOW);
    assert_eq!(call(libc::SYS_prlimit64, first(own)), NOTED);
    assert_eq!(call(libc::SYS_sendmsg, first(SOCKET.into())), ALLOW);
    assert_eq!(call(libc::SYS_sendmsg, first(5)), NOTED);
    assert_eq!(call(libc::SYS_prctl, first(15)), ALLOW);
    let (set_pdeathsig, set_seccomp) = (1, 22);
    assert_eq!(call(libc::SYS_prctl, first(set_pdeathsig)), ABSENT);
    assert_eq!(call(libc::SYS_prctl, first(set_seccomp)), ABSENT);
    assert_eq!(call(libc::SYS_fchmod, [9, 0o600, 0, 0, 0, 0]), ALLOW);
    assert_eq!(call(libc::SYS_fchmod, [9, 0o4777, 0, 0, 0, 0]), NOTED);
}

#[test]
fn calls_of_another_architecture_are_refused() {
    let (i386, read) = (0x4000_0003, libc::SYS_read as u32);
    for listener in [true, false] {
        let filter = filter(input(listener));
        let refused = if listener { NOTED } else { ABSENT };
        for number in [1, 3, 310, read, FIRST_UNKNOWN, u32::MAX] {
            assert_eq!(run(&filter, i386, number, first(0)), refused, "{number}");
        }
        assert_eq!(run(&filter, ARCHITECTURE, X32 | read, first(0)), refused);
        assert_eq!(run(&filter, ARCHITECTURE, u32::MAX, first(0)), refused);
        let unshare = libc::SYS_unshare as u32;
        assert_eq!(run(&filter, ARCHITECTURE, unshare, first(0)), refused);
    }
}
