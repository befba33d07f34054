//! A daemon that reports very many changes: its causes are raised in every odd step and cleared in
//! every even one, and a step lasts until it was read.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diskvitals_wire as wire;
use diskvitals_wire::inventory_server::{Inventory, InventoryServer};
use diskvitals_wire::watch_event::{Change, Item};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

/// Every tenth cause is BAD.
pub const BAD_EVERY: usize = 10;
/// From the reading of a step to the next one.
const STEP_TIME: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Flood {
    causes: usize,
    steps: u64,
    step: Arc<watch::Sender<u64>>,
    /// The step whose findings were listed last.
    listed: Arc<AtomicU64>,
}

/// Ends with the test.
pub struct FakeDaemon {
    runtime: Option<tokio::runtime::Runtime>,
    step: watch::Receiver<u64>,
}

impl FakeDaemon {
    pub fn start(socket: &Path, causes: usize, steps: u64) -> FakeDaemon {
        let (step, steps_done) = watch::channel(1);
        let flood = Flood { causes, steps, step: Arc::new(step), listed: Arc::default() };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(socket).expect("a socket")
        };
        let server = tonic::transport::Server::builder()
            .add_service(InventoryServer::new(flood))
            .serve_with_incoming(UnixListenerStream::new(listener));
        runtime.spawn(async move { server.await.expect("it serves") });
        FakeDaemon { runtime: Some(runtime), step: steps_done }
    }

    pub fn step(&self) -> u64 {
        *self.step.borrow()
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn time(step: u64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp {
        seconds: 1_700_000_000 + i64::try_from(step).expect("a small number"),
        nanos: 0,
    })
}

fn severity(cause: usize) -> i32 {
    match cause.is_multiple_of(BAD_EVERY) {
        true => wire::Severity::Bad.into(),
        false => wire::Severity::Suspect.into(),
    }
}

fn subject(cause: usize) -> wire::Subject {
    wire::Subject { id: format!("naa.{cause:x}"), name: format!("sd{cause}"), ..Default::default() }
}

fn finding_id(cause: usize, step: u64) -> String {
    format!("{cause}-{step}")
}

/// Of the cause that was raised in this step.
fn message(cause: usize, step: u64) -> String {
    format!("sd{cause} raised in step {step}")
}

impl Flood {
    fn now(&self) -> u64 {
        *self.step.borrow()
    }

    fn finding(cause: usize, step: u64, is_active: bool) -> wire::Finding {
        let evidence = (0..3).map(|at| wire::Evidence {
            source: "kernel log".to_owned(),
            time: time(step),
            text: format!("sd{cause}: line {at} {}", "of the kernel's log ".repeat(8)),
            ..Default::default()
        });
        wire::Finding {
            id: finding_id(cause, step),
            subject: Some(subject(cause)),
            severity: severity(cause),
            reason: "IoErrors".to_owned(),
            message: message(cause, step),
            since: time(step),
            evidence: evidence.collect(),
            cleared: (!is_active)
                .then(|| wire::Cleared { time: time(step + 1), why: "it is over".to_owned() }),
            ..Default::default()
        }
    }

    fn cause(cause: usize, step: u64) -> wire::Cause {
        wire::Cause {
            id: format!("drive:naa.{cause:x}"),
            kind: wire::cause::Kind::Drive.into(),
            subject: Some(subject(cause)),
            name: format!("sd{cause}"),
            severity: severity(cause),
            counted: true,
            since: time(step),
            findings: vec![wire::CauseFinding {
                finding_id: finding_id(cause, step),
                subject: Some(subject(cause)),
                reason: "IoErrors".to_owned(),
                severity: severity(cause),
                ..Default::default()
            }],
            message: message(cause, step),
            explain: format!("sd{cause}"),
            ..Default::default()
        }
    }

    fn raised_in(step: u64) -> bool {
        !step.is_multiple_of(2)
    }

    fn list(&self, step: u64) -> Vec<wire::WatchEvent> {
        let event = |change: Change, item: Option<Item>| wire::WatchEvent {
            revision: step,
            change: change.into(),
            item,
            ..Default::default()
        };
        let raised = (0..self.causes).filter(|_| Flood::raised_in(step));
        let items = raised.flat_map(|cause| {
            let finding = Flood::finding(cause, step, true);
            [Item::Finding(finding), Item::Cause(Flood::cause(cause, step))]
        });
        let begin = [event(Change::SnapshotBegin, None)].into_iter();
        let items = items.map(|item| event(Change::Added, Some(item)));
        begin.chain(items).chain([event(Change::SnapshotEnd, None)]).collect()
    }

    fn end(&self, step: u64) {
        let flood = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(STEP_TIME).await;
            flood.step.send_if_modified(|now| {
                let is_next = *now == step && step < flood.steps;
                *now += u64::from(is_next);
                is_next
            });
        });
    }
}

fn not_asked<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not a part of this daemon"))
}

#[tonic::async_trait]
impl Inventory for Flood {
    async fn get_node(
        &self,
        _: Request<wire::GetNodeRequest>,
    ) -> Result<Response<wire::Node>, Status> {
        let step = self.now();
        // The answer makes the view of a list complete.
        if self.listed.load(Ordering::Relaxed) == step {
            self.end(step);
        }
        Ok(Response::new(wire::Node {
            name: "node7".to_owned(),
            api_revision: diskvitals_wire::API_REVISION,
            settled: true,
            revision: step,
            ..Default::default()
        }))
    }

    async fn list_causes(
        &self,
        _: Request<wire::ListCausesRequest>,
    ) -> Result<Response<wire::ListCausesResponse>, Status> {
        let step = self.now();
        let causes = (0..self.causes).filter(|_| Flood::raised_in(step));
        Ok(Response::new(wire::ListCausesResponse {
            causes: causes.map(|cause| Flood::cause(cause, step)).collect(),
            ..Default::default()
        }))
    }

    async fn list_findings(
        &self,
        _: Request<wire::ListFindingsRequest>,
    ) -> Result<Response<wire::ListFindingsResponse>, Status> {
        let now = self.now();
        self.listed.store(now, Ordering::Relaxed);
        let raised = (1..=now).filter(|step| Flood::raised_in(*step));
        let findings = raised.flat_map(|step| {
            (0..self.causes).map(move |cause| Flood::finding(cause, step, step == now))
        });
        Ok(Response::new(wire::ListFindingsResponse {
            findings: findings.collect(),
            ..Default::default()
        }))
    }

    async fn list_drives(
        &self,
        _: Request<wire::ListDrivesRequest>,
    ) -> Result<Response<wire::ListDrivesResponse>, Status> {
        Ok(Response::new(wire::ListDrivesResponse::default()))
    }

    async fn list_volumes(
        &self,
        _: Request<wire::ListVolumesRequest>,
    ) -> Result<Response<wire::ListVolumesResponse>, Status> {
        Ok(Response::new(wire::ListVolumesResponse::default()))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<wire::WatchEvent, Status>> + Send>>;

    async fn watch(
        &self,
        _: Request<wire::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (events, stream) = mpsc::channel(16);
        let (flood, mut steps) = (self.clone(), self.step.subscribe());
        tokio::spawn(async move {
            loop {
                let step = *steps.borrow_and_update();
                for event in flood.list(step) {
                    if events.send(Ok(event)).await.is_err() {
                        return;
                    }
                }
                if steps.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn get_removal(
        &self,
        _: Request<wire::GetRemovalRequest>,
    ) -> Result<Response<wire::Removal>, Status> {
        not_asked()
    }

    async fn get_drive(
        &self,
        _: Request<wire::GetDriveRequest>,
    ) -> Result<Response<wire::Drive>, Status> {
        not_asked()
    }

    async fn get_volume(
        &self,
        _: Request<wire::GetVolumeRequest>,
    ) -> Result<Response<wire::Volume>, Status> {
        not_asked()
    }

    async fn explain(
        &self,
        _: Request<wire::ExplainRequest>,
    ) -> Result<Response<wire::Explanation>, Status> {
        not_asked()
    }

    async fn get_smart_history(
        &self,
        _: Request<wire::GetSmartHistoryRequest>,
    ) -> Result<Response<wire::SmartHistory>, Status> {
        not_asked()
    }

    async fn get_smart_output(
        &self,
        _: Request<wire::GetSmartOutputRequest>,
    ) -> Result<Response<wire::SmartOutput>, Status> {
        not_asked()
    }

    async fn list_attachments(
        &self,
        _: Request<wire::ListAttachmentsRequest>,
    ) -> Result<Response<wire::ListAttachmentsResponse>, Status> {
        not_asked()
    }

    async fn list_drive_io(
        &self,
        _: Request<wire::ListDriveIoRequest>,
    ) -> Result<Response<wire::ListDriveIoResponse>, Status> {
        not_asked()
    }

    async fn get_config(
        &self,
        _: Request<wire::GetConfigRequest>,
    ) -> Result<Response<wire::Config>, Status> {
        not_asked()
    }

    async fn list_reasons(
        &self,
        _: Request<wire::ListReasonsRequest>,
    ) -> Result<Response<wire::ListReasonsResponse>, Status> {
        not_asked()
    }
}
