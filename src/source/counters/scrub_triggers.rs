//! What starts checks and scrubs by itself: timers and cron jobs of the distributions, by their files in
//! /etc. Read once a day: the files are on a disk. A unit of a package that nobody enabled is none.

use std::io;
use std::path::Path;

use diskvitals_host::root::HostRoot;
use diskvitals_model::care::triggers::{ScrubTrigger, TriggerTarget};

const WEEK: u32 = 7;
const MONTH: u32 = 31;

struct CronJob {
    of: TriggerTarget,
    file: &'static str,
    /// In the line of the job.
    program: &'static str,
    period_days: u32,
}

const CRON: [CronJob; 3] = [
    CronJob {
        of: TriggerTarget::Md,
        file: "/etc/cron.d/mdadm",
        program: "checkarray",
        period_days: MONTH,
    },
    CronJob {
        of: TriggerTarget::Md,
        file: "/etc/cron.d/raid-check",
        program: "raid-check",
        period_days: WEEK,
    },
    CronJob {
        of: TriggerTarget::Zfs,
        file: "/etc/cron.d/zfsutils-linux",
        program: "zfs-linux/scrub",
        period_days: MONTH,
    },
];
/// Of checkarray (Debian, mdadm), and of raid-check (Red Hat): each with the value that lets it run.
const DEBIAN_SETTINGS: &str = "/etc/default/mdadm";
const RED_HAT_SETTINGS: &str = "/etc/sysconfig/raid-check";
/// Of btrfsmaintenance.
const BTRFS_SETTINGS: [&str; 2] =
    ["/etc/default/btrfsmaintenance", "/etc/sysconfig/btrfsmaintenance"];
const UNITS: &str = "/etc/systemd/system";
/// Where timers are enabled. mdcheck_start.timer is wanted by the second.
const WANTS: [&str; 2] = ["timers.target.wants", "mdmonitor.service.wants"];

pub fn read(root: &HostRoot) -> io::Result<Vec<ScrubTrigger>> {
    let mut found = Vec::new();
    for job in &CRON {
        found.extend(of_cron(root, job)?);
    }
    for wants in WANTS {
        let dir = format!("{UNITS}/{wants}");
        let units = match std::fs::read_dir(root.at(&dir)) {
            Ok(units) => units.collect::<io::Result<Vec<_>>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Err(error),
        };
        for unit in units.map_err(|error| of_file(&dir, &error))? {
            if let Some(name) = unit.file_name().to_str() {
                found.extend(of_timer(root, &dir, name)?);
            }
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

fn of_cron(root: &HostRoot, job: &CronJob) -> io::Result<Option<ScrubTrigger>> {
    let Some(text) = text(root, job.file)? else { return Ok(None) };
    let mut lines = text.lines().map(str::trim);
    let has_job = lines.any(|line| !line.starts_with('#') && line.contains(job.program));
    let off = (!has_job).then(|| "it has no job any more".to_owned());
    let found = ScrubTrigger {
        file: job.file.to_owned(),
        period_days: Some(job.period_days),
        off,
        ..ScrubTrigger::of(job.of)
    };
    Ok(Some(match job.program {
        "checkarray" => {
            let settings = self::text(root, DEBIAN_SETTINGS)?.unwrap_or_default();
            switched(
                found,
                DEBIAN_SETTINGS,
                &settings,
                "AUTOCHECK",
                &["true", "yes", "y", "1", "t"],
            )
        }
        "raid-check" => raid_check(root, found)?,
        _ => found,
    }))
}

/// raid-check reads its settings itself, whatever starts it.
fn raid_check(root: &HostRoot, found: ScrubTrigger) -> io::Result<ScrubTrigger> {
    let settings = text(root, RED_HAT_SETTINGS)?.unwrap_or_default();
    let skipped = setting(&settings, "SKIP_DEVS").unwrap_or_default();
    let name = |device: &str| device.trim_start_matches("/dev/").to_owned();
    let found = ScrubTrigger { except: skipped.split_whitespace().map(name).collect(), ..found };
    Ok(switched(found, RED_HAT_SETTINGS, &settings, "ENABLED", &["yes"]))
}

fn switched(
    found: ScrubTrigger,
    file: &str,
    settings: &str,
    key: &str,
    on: &[&str],
) -> ScrubTrigger {
    let value = setting(settings, key);
    let value = value.filter(|value| !on.contains(&value.to_ascii_lowercase().as_str()));
    let off = value.map(|value| format!("{key}={value:.20} in {file}"));
    ScrubTrigger { off: found.off.or(off), ..found }
}

fn of_timer(root: &HostRoot, dir: &str, name: &str) -> io::Result<Option<ScrubTrigger>> {
    // `systemctl mask`: it wins over being enabled.
    let mask = std::fs::read_link(root.at(format!("{UNITS}/{name}")));
    let is_masked = mask.is_ok_and(|to| to == Path::new("/dev/null"));
    let trigger = |of, period_days| ScrubTrigger {
        file: format!("{dir}/{name}"),
        period_days,
        off: is_masked.then(|| "it is masked".to_owned()),
        ..ScrubTrigger::of(of)
    };
    let instance = |prefix: &str| name.strip_prefix(prefix)?.strip_suffix(".timer");
    let of_one =
        |of, period, only: String| ScrubTrigger { only: vec![only], ..trigger(of, Some(period)) };
    Ok(match name {
        "mdcheck_start.timer" => Some(trigger(TriggerTarget::Md, Some(MONTH))),
        "raid-check.timer" => Some(raid_check(root, trigger(TriggerTarget::Md, Some(WEEK)))?),
        "btrfs-scrub.timer" => Some(btrfs_maintenance(root, trigger(TriggerTarget::Btrfs, None))?),
        _ if let Some(pool) = instance("zfs-scrub-weekly@") => {
            Some(of_one(TriggerTarget::Zfs, WEEK, unescaped(pool)))
        }
        _ if let Some(pool) = instance("zfs-scrub-monthly@") => {
            Some(of_one(TriggerTarget::Zfs, MONTH, unescaped(pool)))
        }
        // The name of a path: `-` for `/` (systemd.unit(5)).
        _ if let Some(path) = instance("btrfs-scrub@") => {
            let path = unescaped(&path.replace('-', "/"));
            let path = format!("/{}", path.trim_matches('/'));
            Some(of_one(TriggerTarget::Btrfs, MONTH, path))
        }
        _ => None,
    })
}

fn btrfs_maintenance(root: &HostRoot, found: ScrubTrigger) -> io::Result<ScrubTrigger> {
    let mut settings = String::new();
    for file in BTRFS_SETTINGS {
        settings += &text(root, file)?.unwrap_or_default();
    }
    let period = setting(&settings, "BTRFS_SCRUB_PERIOD");
    let off = period.as_deref().filter(|period| *period == "none");
    let off = off.map(|_| "BTRFS_SCRUB_PERIOD=none".to_owned());
    let places = setting(&settings, "BTRFS_SCRUB_MOUNTPOINTS").unwrap_or_else(|| "/".to_owned());
    let places = places.split(':').filter(|it| !it.is_empty()).map(str::to_owned);
    let only: Vec<String> = places.collect();
    let is_all = only.iter().any(|it| it == "auto");
    Ok(ScrubTrigger {
        only: if is_all { Vec::new() } else { only },
        period_days: period.as_deref().map_or(Some(MONTH), days),
        off: found.off.or(off),
        ..found
    })
}

/// `\x2d` is how systemd writes a `-` in the name of an instance.
fn unescaped(name: &str) -> String {
    name.replace(r"\x2d", "-")
}

/// systemd.time(7), calendar events in one word. None: another event.
fn days(period: &str) -> Option<u32> {
    match period {
        "daily" => Some(1),
        "weekly" => Some(WEEK),
        "monthly" => Some(MONTH),
        "quarterly" => Some(92),
        "semiannually" => Some(184),
        "yearly" | "annually" => Some(366),
        _ => None,
    }
}

/// None: there is no such file.
fn text(root: &HostRoot, path: &str) -> io::Result<Option<String>> {
    match root.read(path) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(of_file(path, &error)),
    }
}

fn of_file(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// The last assignment in a file for a shell, without its quotes.
fn setting(text: &str, key: &str) -> Option<String> {
    let mut values =
        text.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
    values.next_back().map(|value| value.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<ScrubTrigger> {
        let dir = tempfile::tempdir().expect("dir");
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("directory");
            match text.strip_prefix("-> ") {
                Some(to) => std::os::unix::fs::symlink(to, path).expect("link"),
                None => std::fs::write(path, text).expect("file"),
            }
        }
        read(&HostRoot::new(dir.path())).expect("read")
    }

    /// Each as `mdadm md 31`, with `only`, `except` and why it is off.
    fn lines(files: &[(&str, &str)]) -> Vec<String> {
        let line = |it: ScrubTrigger| {
            let name = it.file.rsplit('/').next().unwrap_or_default().to_owned();
            let days = it.period_days.map_or("-".to_owned(), |days| days.to_string());
            let rest = [it.only.join(","), it.except.join(","), it.off.unwrap_or_default()];
            format!("{name} {:?} {days} {}", it.of, rest.join("|"))
        };
        found(files).into_iter().map(line).collect()
    }

    const DEBIAN: (&str, &str) =
        ("etc/cron.d/mdadm", "# x\n57 0 * * 0 root if [ -x /usr/share/mdadm/checkarray ]; then\n");
    const ZFS: (&str, &str) =
        ("etc/cron.d/zfsutils-linux", "24 0 8-14 * * root /usr/lib/zfs-linux/scrub\n");

    #[test]
    fn cron_jobs_count_unless_they_are_switched_off() {
        assert_eq!(found(&[]), []);
        let zfs = "zfsutils-linux Zfs 31 ||";
        assert_eq!(lines(&[DEBIAN, ZFS]), ["mdadm Md 31 ||", zfs]);
        let settings = |text| [DEBIAN, ZFS, ("etc/default/mdadm", text)];
        let on = settings("#AUTOCHECK=false\nAUTOCHECK=true\n");
        assert_eq!(lines(&on), ["mdadm Md 31 ||", zfs]);
        let off = settings("AUTOCHECK=true\nAUTOCHECK=\"false\"\n");
        assert_eq!(lines(&off), ["mdadm Md 31 ||AUTOCHECK=false in /etc/default/mdadm", zfs]);
        let comment = [("etc/cron.d/mdadm", "#57 0 * * 0 root /usr/share/mdadm/checkarray\n")];
        assert_eq!(lines(&comment), ["mdadm Md 31 ||it has no job any more"]);
        let red_hat = [
            ("etc/cron.d/raid-check", "0 1 * * Sun root /usr/sbin/raid-check\n"),
            ("etc/sysconfig/raid-check", "ENABLED=yes\nSKIP_DEVS=\"md3 /dev/md4\"\n"),
        ];
        assert_eq!(lines(&red_hat), ["raid-check Md 7 |md3,md4|"]);
    }

    #[test]
    fn timers_count_while_they_are_enabled_and_not_masked() {
        let files = [
            ("etc/systemd/system/mdmonitor.service.wants/mdcheck_start.timer", ""),
            ("etc/systemd/system/timers.target.wants/zfs-scrub-weekly@my\\x2dpool.timer", ""),
            ("etc/systemd/system/timers.target.wants/zfs-scrub-monthly@old.timer", ""),
            ("etc/systemd/system/zfs-scrub-monthly@old.timer", "-> /dev/null"),
            ("etc/systemd/system/timers.target.wants/btrfs-scrub@srv-my\\x2ddata.timer", ""),
            ("etc/systemd/system/timers.target.wants/btrfs-scrub@-.timer", ""),
            ("etc/systemd/system/timers.target.wants/fstrim.timer", ""),
        ];
        let expected = [
            "mdcheck_start.timer Md 31 ||",
            "btrfs-scrub@-.timer Btrfs 31 /||",
            "btrfs-scrub@srv-my\\x2ddata.timer Btrfs 31 /srv/my-data||",
            "zfs-scrub-monthly@old.timer Zfs 31 old||it is masked",
            "zfs-scrub-weekly@my\\x2dpool.timer Zfs 7 my-pool||",
        ];
        assert_eq!(lines(&files), expected);
    }

    #[test]
    fn btrfsmaintenance_scrubs_the_mount_points_that_it_is_told() {
        let timer = ("etc/systemd/system/timers.target.wants/btrfs-scrub.timer", "");
        for (settings, expected) in [
            ("", "31 /||"),
            (
                "BTRFS_SCRUB_PERIOD=\"quarterly\"\nBTRFS_SCRUB_MOUNTPOINTS=\"/:/srv\"\n",
                "92 /,/srv||",
            ),
            ("BTRFS_SCRUB_PERIOD=\"Mon *-*-01\"\nBTRFS_SCRUB_MOUNTPOINTS=auto\n", "- ||"),
            ("BTRFS_SCRUB_PERIOD=none\n", "- /||BTRFS_SCRUB_PERIOD=none"),
        ] {
            let files = [timer, ("etc/default/btrfsmaintenance", settings)];
            assert_eq!(
                lines(&files),
                [format!("btrfs-scrub.timer Btrfs {expected}")],
                "{settings}"
            );
        }
    }
}
