//! Checks of rules that the types do not express: limits, and values that contradict each other.

use std::path::Path;
use std::time::Duration;

use crate::{Config, InvalidValue, provision};
use diskvitals_host::listen_address::Address;

/// A drive that is polled more rarely is not monitored; also, sums of times cannot overflow.
const MAX_SMART_INTERVAL: u64 = 30 * 24 * 3600;
const MAX_SMART_TIMEOUT: u64 = 3600;

pub(super) fn check(config: &Config) -> Result<(), InvalidValue> {
    times(config)?;
    let Config { space, thin_pool, smart, probes, checks, .. } = config;
    between("probes.max_stuck", probes.max_stuck, 512)?;
    between("smart.at_once", smart.at_once, 16)?;
    let unreachable = config.storage_failed.unreachable_percent;
    between("storage_failed.unreachable_percent", u32::from(unreachable), 100)?;
    let percents = [
        ("thin_pool.suspect_percent", thin_pool.suspect_percent),
        ("thin_pool.bad_percent", thin_pool.bad_percent),
        ("thin_pool.clear_percent", thin_pool.clear_percent),
    ];
    for (key, value) in percents {
        if value > 100 {
            return Err(InvalidValue::new(key, format!("{value} is more than 100 %")));
        }
    }
    if let Some((key, problem)) = space.problem() {
        return Err(InvalidValue::new(key, problem));
    }
    if thin_pool.clear_percent > thin_pool.suspect_percent
        || thin_pool.suspect_percent > thin_pool.bad_percent
    {
        return Err(InvalidValue::new(
            "thin_pool",
            "must be ordered: clear_percent <= suspect_percent <= bad_percent",
        ));
    }
    absolute("kernel_log.path", Some(&config.kernel_log.path))?;
    absolute("smart.command", Some(&smart.command))?;
    absolute("checks.tools.e2fsck", checks.tools.e2fsck.as_deref())?;
    absolute("checks.tools.xfs_repair", checks.tools.xfs_repair.as_deref())?;
    absolute("checks.tools.btrfs", checks.tools.btrfs.as_deref())?;
    absolute("checks.tools.lvm", checks.tools.lvm.as_deref())?;
    let policy = config.policy().smart;
    let overrides = policy.overrides.iter();
    let mut limits =
        overrides.map(|set| policy.limits.with(&set.limits)).chain([policy.limits.clone()]);
    let contradiction =
        limits.find_map(|limits| limits.validation_error()).or_else(|| checks.validation_error());
    if let Some((key, problem)) = contradiction {
        return Err(InvalidValue::new(key, problem));
    }
    provision::check(&config.statics, &config.csi)?;
    let listen = &config.metrics.listen;
    match listen.parse::<Address>() {
        Err(error) if !listen.is_empty() => {
            Err(InvalidValue::new("metrics.listen", error.to_string()))
        }
        _ => Ok(()),
    }
}

fn times(config: &Config) -> Result<(), InvalidValue> {
    let (drives, probes, smart) = (&config.drives, &config.probes, &config.smart);
    let limits: [(&'static str, Duration, u64, u64); 12] = [
        ("drives.reconcile_interval", drives.reconcile_interval, 10, u64::MAX),
        ("probes.interval", probes.interval, 1, u64::MAX),
        ("probes.timeout", probes.timeout, 1, u64::MAX),
        ("io.interval", config.io.interval, 1, u64::MAX),
        ("io.stalled_after", config.io.stalled_after, 1, u64::MAX),
        ("counters.interval", config.counters.interval, 1, u64::MAX),
        ("smart.interval", smart.interval, 1, MAX_SMART_INTERVAL),
        ("smart.suspect_interval", smart.suspect_interval, 1, MAX_SMART_INTERVAL),
        ("smart.shortest_interval", smart.shortest_interval, 1, MAX_SMART_INTERVAL),
        ("smart.slow_interval", smart.slow_interval, 1, MAX_SMART_INTERVAL),
        ("smart.idle_interval", smart.idle_interval, 1, MAX_SMART_INTERVAL),
        ("smart.timeout", smart.timeout, 1, MAX_SMART_TIMEOUT),
    ];
    for (key, value, least, most) in limits {
        let seconds = value.as_secs();
        if value < Duration::from_secs(least) {
            let problem = format!("{seconds}s is too short: at least {least}s");
            return Err(InvalidValue::new(key, problem));
        }
        if value > Duration::from_secs(most) {
            let problem = format!("{seconds}s is too long: at most {most}s");
            return Err(InvalidValue::new(key, problem));
        }
    }
    Ok(())
}

fn between(key: &'static str, value: u32, most: u32) -> Result<(), InvalidValue> {
    match value {
        1.. if value <= most => Ok(()),
        _ => {
            let problem = format!("{value} is not between 1 and {most}");
            Err(InvalidValue::new(key, problem))
        }
    }
}

fn absolute(key: &'static str, path: Option<&Path>) -> Result<(), InvalidValue> {
    match path {
        Some(path) if !path.is_absolute() => {
            let problem = format!("`{}` is not an absolute path", path.display());
            Err(InvalidValue::new(key, problem))
        }
        _ => Ok(()),
    }
}
