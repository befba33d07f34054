//! The command `stale`: mounts of pods that no longer exist, and nodes that are not clean of them.

use serde::Serialize;

use crate::api::Api;
use crate::args::Options;
use crate::render::{self, overview::UNCLEAN_TITLE};
use crate::view::Gap;
use crate::view::claims::{StaleRow, stale, stale_gaps};
use crate::view::nodes::nodes;
use crate::view::unclean::{self, UncleanRow};
use crate::{Error, Out, gaps_of, gather, named_gaps, read_base};
use diskvitals_terminal::layout::heading;

pub(crate) async fn list(
    api: &Api,
    options: &Options,
    node: Option<&str>,
    out: &mut Out,
) -> Result<(), Error> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        items: Vec<StaleRow>,
        unclean: Vec<UncleanRow>,
        not_seen: Vec<Gap>,
    }
    let base = read_base(api, options, node, out).await?;
    let nodes = nodes(&base);
    let named = gather::named(api, &nodes, None).await;
    let mut gaps = stale_gaps(&nodes);
    gaps.extend(unclean::gaps(&nodes));
    gaps.extend(gaps_of(&base, &nodes));
    gaps.extend(named_gaps(&named));
    let answer = Answer {
        items: stale(&nodes, &named),
        unclean: unclean::unclean(&nodes, &named),
        not_seen: gaps,
    };
    out.show(&answer, || {
        let (wide, screen) = (out.is_wide(), &out.screen);
        let mut text = match (answer.items.is_empty(), answer.not_seen.is_empty()) {
            (true, _) if !answer.unclean.is_empty() => "no mount is listed as stale\n".to_owned(),
            (true, true) => "no stale mounts\n".to_owned(),
            (true, false) => "no stale mounts that can be seen\n".to_owned(),
            (false, _) => render::stale(&answer.items, wide, screen),
        };
        if !answer.unclean.is_empty() {
            text.push_str(&format!("\n{}", heading(UNCLEAN_TITLE, screen)));
            text.push_str(&render::unclean(&answer.unclean, wide, screen));
        }
        text + &render::gaps(&answer.not_seen, screen)
    })
}
