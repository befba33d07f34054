//! Reports the status of one source to the owner, only when the status has changed.

use crate::context::{Context, SourceError};
use diskvitals_finding::source::Source;
use diskvitals_model::source_update::{SourceStatus, SourceUpdate};

pub struct StatusReporter {
    source: Source,
    reported: Option<SourceStatus>,
}

impl StatusReporter {
    pub fn new(source: Source) -> StatusReporter {
        StatusReporter { source, reported: None }
    }

    pub async fn report(
        &mut self,
        context: &Context,
        status: SourceStatus,
    ) -> Result<(), SourceError> {
        if self.reported.as_ref() == Some(&status) {
            return Ok(());
        }
        self.reported = Some(status.clone());
        let source = self.source;
        context.report(SourceUpdate::Source { source, status }).await
    }
}
