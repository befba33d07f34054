//! The system calls of a jailed program, as a seccomp filter (seccomp(2)). Pure.
//!
//! In: what is known when the program starts. Out: classic BPF for `host::sys`. Everything that is
//! not listed fails with ENOSYS and ends nothing, so that a program of any version meets a kernel
//! that lacks the call. Such a call is noted, because no checker needs it, except where a C library
//! or tool tries a newer call first and copes without it.

use nix::libc::{
    self, BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF, c_long, sock_filter,
};

/// The architecture of this binary (linux/audit.h): another one has other numbers.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// __X32_SYSCALL_BIT; other architectures use no such numbers.
const X32: u32 = 0x4000_0000;
/// The first number without a call in Linux 6.18. A later call fails as on an older kernel.
const FIRST_UNKNOWN: u32 = 470;

/// Reading files, memory, threads, time, signals to itself, and running programs. The checkers'
/// most frequent calls come first.
const ALLOWED: &[c_long] = &[
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_futex,
    libc::SYS_rt_sigprocmask,
    libc::SYS_write,
    libc::SYS_lseek,
    libc::SYS_readahead,
    libc::SYS_fadvise64,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_brk,
    // Files. What is opened for writing is refused by its mount, its mode and Landlock, as always;
    // ftruncate and fallocate are for memory files (xfs_repair since 6.9).
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_memfd_create,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_getcwd,
    libc::SYS_umask,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // Memory and threads.
    libc::SYS_msync,
    libc::SYS_membarrier,
    libc::SYS_mseal,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_futex_waitv,
    // map_shadow_stack, futex_wake, futex_wait, futex_requeue: libc has no names for them.
    453,
    454,
    455,
    456,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    // Signals, and programs.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_restart_syscall,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // What it may know.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_getpriority,
    libc::SYS_ioprio_get,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older forms of the above, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_eventfd,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_signalfd,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_pause,
    libc::SYS_alarm,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[c_long] = &[];

/// What starts another process, beside clone.
#[cfg(target_arch = "x86_64")]
const FORKS: &[c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FORKS: &[c_long] = &[];

/// Whether this call may start another process.
pub fn is_fork(call: i32) -> bool {
    FORKS.iter().chain([&libc::SYS_clone]).any(|fork| *fork == c_long::from(call))
}

/// Tried by C libraries and tools, which cope with ENOSYS: refused, and no reason for doubt.
/// clone3 hides its flags from a filter, and glibc then uses clone; prctl has options for every new
/// feature of a processor; cat tries copy_file_range; libgcrypt locks memory.
const OPTIONAL: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_prctl,
    libc::SYS_copy_file_range,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_name_to_handle_at,
];

/// Namespaces, and children that belong to another process.
#[allow(clippy::cast_sign_loss)] // Bits.
const FORBIDDEN_CLONE_FLAGS: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PARENT
    | libc::CLONE_PTRACE) as u32;

#[allow(clippy::cast_sign_loss)] // A bit.
const CLONE_THREAD: u32 = libc::CLONE_THREAD as u32;

/// PR_GET_DUMPABLE (libcom_err), PR_SET_NAME, PR_GET_NAME, PR_CAPBSET_READ (libcap), PR_SET_VMA
/// (glibc names its memory). Not PR_SET_PDEATHSIG: the program ends with its parent.
const PRCTL_OPTIONS: &[u32] = &[3, 15, 16, 23, 0x5356_4d41];

/// Which values of an argument make a call allowed. Its lower half decides: all these are ints.
enum Condition {
    OneOf(Vec<u32>),
    /// The one bit of the first number, if it has one, and no bit of the second.
    Bits(u32, u32),
}

/// What is known when the program starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterInput {
    /// A signal may go to this process alone: another one may have the same user.
    pub pid: u32,
    /// The descriptor that the listener is sent over; closed in the program.
    pub socket: u32,
    /// A listener learns of refused calls. Without one, they only fail.
    pub listener: bool,
    /// It may start threads, and no other process.
    pub threads_only: bool,
}

/// The filter. It is loaded last: it allows execve and what is called before it.
pub(crate) fn filter(input: FilterInput) -> Vec<sock_filter> {
    let absent = SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let noted = if input.listener { SECCOMP_RET_USER_NOTIF } else { absent };
    let conditions = [
        (
            libc::SYS_clone,
            0,
            Condition::Bits(
                if input.threads_only { CLONE_THREAD } else { 0 },
                FORBIDDEN_CLONE_FLAGS,
            ),
        ),
        (libc::SYS_prctl, 0, Condition::OneOf(PRCTL_OPTIONS.to_vec())),
        (libc::SYS_kill, 0, Condition::OneOf(vec![input.pid])),
        (libc::SYS_tgkill, 0, Condition::OneOf(vec![input.pid])),
        (libc::SYS_prlimit64, 0, Condition::OneOf(vec![0])),
        // The mode of xfs_repair's memory files.
        (libc::SYS_fchmod, 1, Condition::OneOf(vec![0o600])),
        (libc::SYS_sendmsg, 0, Condition::OneOf(vec![input.socket])),
    ];
    let mut filter = vec![load(ARCHITECTURE_AT)];
    filter.extend([jump(BPF_JEQ, ARCHITECTURE, 1, 0), result(noted)]);
    filter.push(load(NUMBER_AT));
    filter.extend(result_if(BPF_JGE, X32, noted));
    filter.extend(result_if(BPF_JGE, FIRST_UNKNOWN, absent));
    let forks = if input.threads_only { &[] } else { FORKS };
    for call in ALLOWED.iter().chain(ALLOWED_OLD).chain(forks) {
        filter.extend(result_if(BPF_JEQ, number(*call), SECCOMP_RET_ALLOW));
    }
    for (call, argument, condition) in conditions {
        let mut body = vec![load(ARGUMENTS_AT + 8 * argument)];
        match condition {
            Condition::OneOf(values) => body.extend(
                values.iter().flat_map(|value| result_if(BPF_JEQ, *value, SECCOMP_RET_ALLOW)),
            ),
            Condition::Bits(required, forbidden) => {
                // One bit, or none: then every value passes.
                if required != 0 {
                    body.push(jump(BPF_JSET, required, 0, 2));
                }
                body.extend([jump(BPF_JSET, forbidden, 1, 0), result(SECCOMP_RET_ALLOW)]);
            }
        }
        body.push(load(NUMBER_AT));
        let length = u8::try_from(body.len()).unwrap_or(u8::MAX);
        filter.push(jump(BPF_JEQ, number(call), 0, length));
        filter.extend(body);
    }
    for call in OPTIONAL {
        filter.extend(result_if(BPF_JEQ, number(*call), absent));
    }
    filter.push(result(noted));
    filter
}

/// Offsets in struct seccomp_data; of an argument, its lower half (both architectures are
/// little-endian).
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// The kernel compares 32 bits.
fn number(call: c_long) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_possible_truncation)] // The codes of linux/filter.h fit 16 bits.
const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

const fn load(offset: u32) -> sock_filter {
    instruction(BPF_LD | BPF_W | BPF_ABS, offset, 0, 0)
}

const fn jump(test: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    instruction(BPF_JMP | test | BPF_K, value, if_true, if_false)
}

const fn result(action: u32) -> sock_filter {
    instruction(BPF_RET | BPF_K, action, 0, 0)
}

fn result_if(test: u32, value: u32, action: u32) -> [sock_filter; 2] {
    [jump(test, value, 0, 1), result(action)]
}

#[cfg(test)]
mod tests;
