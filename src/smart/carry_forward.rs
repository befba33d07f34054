//! Fills in a report that has less than the one before it: a command failed, or a quick query left
//! out slow log pages. A missing value keeps its last known value until a report has it again:
//! unknown does not mean healthy, and is no change either.
//!
//! In: a report, and the earlier reports of the same drive. Out: the completed report. Must not
//! contain: evaluation, the history of values.
//!
//! Values that belong together are replaced together or carried forward together: an error log with
//! its count, a verdict with its reasons. Never carried forward: the exit status of smartctl, its
//! messages except firmware notices, and the progress of a running self-test.

#[cfg(test)]
mod tests;

use crate::report::{
    Ata, Attribute, Body, ErrorCounter, ErrorRecovery, Identity, Message, Nvme, Scsi, SelfTest,
    SelfTestOutcome, SelfTests, SmartReport, WhenFailed,
};

/// Carries several fields of `$now` forward.
macro_rules! carry_fields {
    ($now:ident, $before:ident, $($field:ident),+) => {
        $(carry(&mut $now.$field, &$before.$field);)+
    };
}

/// Maximum number of messages kept for one drive, including those carried forward.
const MAX_MESSAGES: usize = 32;

impl SmartReport {
    /// `before`: the completed report of the same drive. A report of another protocol has no common
    /// fields.
    pub fn carry_forward(&mut self, before: &SmartReport) {
        if protocol(&self.body)
            .is_some_and(|now| protocol(&before.body).is_some_and(|then| now != then))
        {
            return;
        }
        // A limit of error recovery is forgotten when power is lost.
        let own_limit = error_recovery(&self.body);
        let has_kept_power =
            self.power_cycles.is_some() && self.power_cycles == before.power_cycles;
        self.carry_messages(before);
        self.carry_overall_health(before);
        carry_fields!(
            self,
            before,
            available,
            enabled,
            temperature,
            temperature_limit,
            power_on_hours,
            power_cycles
        );
        self.identity.carry_forward(&before.identity);
        self.self_tests.carry_forward(&before.self_tests);
        match (&mut self.body, &before.body) {
            (Body::Ata(now), Body::Ata(before)) => now.carry_forward(before),
            (Body::Nvme(now), Body::Nvme(before)) => now.carry_forward(before),
            (Body::Scsi(now), Body::Scsi(before)) => now.carry_forward(before),
            (now @ Body::None, before) => now.clone_from(before),
            (Body::Ata(_) | Body::Nvme(_) | Body::Scsi(_), _) => {}
        }
        if let (Body::Ata(now), false) = (&mut self.body, has_kept_power) {
            now.error_recovery = own_limit;
        }
    }

    /// Carries the verdict and its reasons. SCSI reports a reason with a bad verdict only. The
    /// verdict of NVMe equals its warnings (nvmeprint.cpp), so other warnings invalidate an old
    /// verdict. The note that smartctl derived the verdict is carried with it.
    fn carry_overall_health(&mut self, before: &SmartReport) {
        let passed = self.overall_passed();
        if passed.is_some() {
            if let (Body::Scsi(now), Body::Scsi(before), Some(false)) =
                (&mut self.body, &before.body, passed)
            {
                carry(&mut now.exception, &before.exception);
            }
            self.passed = passed;
            return;
        }
        let is_outdated = match (&self.body, &before.body) {
            (Body::Nvme(now), Body::Nvme(before)) => {
                now.critical_warning.is_some() && now.critical_warning != before.critical_warning
            }
            (Body::Scsi(now), Body::Scsi(before)) => {
                now.exception.is_some() && now.exception != before.exception
            }
            _ => false,
        };
        if is_outdated {
            return;
        }
        self.passed = before.overall_passed();
        if let (Body::Scsi(now), Body::Scsi(before)) = (&mut self.body, &before.body) {
            carry(&mut now.exception, &before.exception);
        }
        let qualifies =
            before.messages.iter().filter(|message| message.is_attribute_check_warning());
        append_messages(&mut self.messages, qualifies);
    }

    /// Firmware notices are only in the text output, which a quick query does not have. Another
    /// firmware may be the fix that a notice requires.
    fn carry_messages(&mut self, before: &SmartReport) {
        let other_firmware =
            self.identity.firmware.is_some() && self.identity.firmware != before.identity.firmware;
        if !self.with_text && !other_firmware {
            append_messages(
                &mut self.messages,
                before.messages.iter().filter(|message| message.is_firmware_notice()),
            );
        }
    }
}

/// None: the report has no body.
fn protocol(body: &Body) -> Option<std::mem::Discriminant<Body>> {
    (*body != Body::None).then(|| std::mem::discriminant(body))
}

fn error_recovery(body: &Body) -> Option<ErrorRecovery> {
    match body {
        Body::Ata(ata) => ata.error_recovery,
        _ => None,
    }
}

fn carry<T: Clone>(now: &mut Option<T>, before: &Option<T>) {
    if now.is_none() {
        now.clone_from(before);
    }
}

fn append_messages<'a>(messages: &mut Vec<Message>, before: impl Iterator<Item = &'a Message>) {
    for message in before {
        if messages.len() < MAX_MESSAGES && !messages.contains(message) {
            messages.push(message.clone());
        }
    }
}

impl Identity {
    fn carry_forward(&mut self, before: &Identity) {
        carry_fields!(
            self,
            before,
            vendor,
            model,
            serial,
            firmware,
            wwn,
            size_bytes,
            rotation_rate
        );
        // A drive that is not in the database has no family.
        if self.in_database.is_none() && self.family.is_none() {
            self.in_database = before.in_database;
            self.family.clone_from(&before.family);
        }
    }
}

impl SelfTests {
    fn carry_forward(&mut self, before: &SelfTests) {
        carry_fields!(self, before, short_minutes, long_minutes);
        if self.log_read {
            return;
        }
        if !before.log_read {
            // Neither log was read: only the status of the last test is known.
            if self.last.is_none() {
                self.last = before.last;
                self.log.clone_from(&before.log);
            }
            return;
        }
        let mut log: Vec<SelfTest> = before.log.clone();
        if self.last == Some(SelfTestOutcome::Passed) {
            log.retain(|test| !test.is_status_only());
        }
        // A failure in the drive's status that the earlier log does not have is newer than the log.
        if log.first().is_none_or(|newest| newest.outcome != SelfTestOutcome::Failed) {
            log.splice(0..0, self.log.drain(..));
        }
        self.log = log;
        self.log_read = true;
        carry(&mut self.last, &before.last);
    }
}

impl Ata {
    fn carry_forward(&mut self, before: &Ata) {
        if self.attributes.is_empty() {
            self.attributes.clone_from(&before.attributes);
        }
        for attribute in self
            .attributes
            .iter_mut()
            .filter(|attribute| attribute.when_failed == WhenFailed::Unknown)
        {
            if let Some(before) = before.attributes.iter().find(|before| before.id == attribute.id)
            {
                attribute.carry_forward(before);
            }
        }
        if self.error_count.is_none() {
            self.error_count = before.error_count;
            self.last_errors.clone_from(&before.last_errors);
        }
        carry(&mut self.pending_defects, &before.pending_defects);
        // By page: each page is a separate log, which can fail alone.
        let missing = before
            .statistics
            .iter()
            .filter(|then| !self.statistics.iter().any(|now| now.page == then.page));
        let missing: Vec<_> = missing.cloned().collect();
        self.statistics.extend(missing);
        carry_fields!(
            self,
            before,
            endurance_used,
            spare_available,
            spare_threshold,
            error_recovery,
            zoned
        );
    }
}

impl Attribute {
    /// The manufacturer's threshold does not change; the current value may have reached it or left
    /// it.
    fn carry_forward(&mut self, before: &Attribute) {
        carry(&mut self.threshold, &before.threshold);
        let below =
            self.threshold.is_some_and(|threshold| threshold > 0 && self.value <= threshold);
        self.when_failed = match before.when_failed {
            WhenFailed::Unknown => WhenFailed::Unknown,
            same if self.value == before.value => same,
            _ if below => WhenFailed::Now,
            WhenFailed::Now => WhenFailed::Past,
            other => other,
        };
    }
}

impl Nvme {
    fn carry_forward(&mut self, before: &Nvme) {
        if self.error_log_entries.is_none() && self.last_errors.is_empty() {
            self.last_errors.clone_from(&before.last_errors);
        }
        carry_fields!(
            self,
            before,
            critical_warning,
            available_spare,
            available_spare_threshold,
            percentage_used,
            media_errors,
            error_log_entries,
            unsafe_shutdowns,
            data_units_written,
            data_units_read,
            warning_temperature_minutes,
            critical_temperature_minutes
        );
    }
}

impl Scsi {
    /// All fields except the exception, which is carried with the verdict.
    fn carry_forward(&mut self, before: &Scsi) {
        carry_fields!(
            self,
            before,
            grown_defects,
            pending_defects,
            percentage_used,
            background_scan,
            background_errors
        );
        for (now, before) in [
            (&mut self.read, &before.read),
            (&mut self.write, &before.write),
            (&mut self.verify, &before.verify),
        ] {
            match (now, before) {
                (Some(now), Some(before)) => now.carry_forward(before),
                (now, before) => carry(now, before),
            }
        }
    }
}

impl ErrorCounter {
    fn carry_forward(&mut self, before: &ErrorCounter) {
        carry_fields!(self, before, corrected, uncorrected, gigabytes);
    }
}
