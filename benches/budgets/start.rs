//! The time from the start of the process to the first complete answer over the socket.

use crate::daemon::{Host, Program, check_snapshot};
use crate::figures::{Figures, Goal, Samples};
use crate::tree::Plan;

const RUNS: usize = 5;

pub async fn measure(program: &Program, figures: &mut Figures) -> anyhow::Result<()> {
    let host = Host::recorded(Plan { drives: 64, volumes: 500, hung: 0 })?;
    let mut samples = Samples::default();
    // The first run creates the database; later runs find it.
    let mut dir = None;
    for _run in 0..RUNS {
        let mut daemon = program.start(host.root(), "", dir.take())?;
        let (took, node) = daemon.wait_settled().await?;
        check_snapshot(&host, &node)?;
        samples.push(took);
        dir = Some(daemon.stop()?);
    }
    figures.figure_without_goal(
        "start_to_full_answer_p50",
        samples.quantile(0.5).as_secs_f64(),
        "s",
    );
    figures.add("start_to_full_answer_max", samples.max().as_secs_f64(), "s", Goal::AtMost(2.0));
    Ok(())
}
