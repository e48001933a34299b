//! What a proxy holds in memory while very many clients are connected and say nothing.

use crate::child::Running;
use crate::client::{Link, Way};
use crate::run::Fallible;
use crate::series::Series;
use crate::stage::Stage;
use crate::table::Table;

pub(crate) const GROUP: &str = "memory with 1000 idle connections";
pub(crate) const ALONE: &str = "memory before that";
const CONNECTIONS: usize = 1000;

pub(crate) async fn measure(table: &mut Table, stage: &Stage) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for one in &stage.reverse {
        let Some((_, running)) = stage.running.iter().find(|(name, _)| *name == one.name) else {
            if let Err(why) = &one.way {
                after.push(Series { missing: Some(why.clone()), ..Series::new(GROUP, one.name, "MiB") });
            }
            continue;
        };
        // Where there is no base URL yet, plain requests hold connections just as well.
        let plain = stage.plain.iter().find(|plain| plain.name == one.name).and_then(|plain| plain.way.as_ref().ok());
        let way = one.way.as_ref().ok().or(plain);
        let (mut alone, mut crowded) = (Series::new(ALONE, one.name, "MiB"), Series::new(GROUP, one.name, "MiB"));
        match way {
            Some(way) => match crowd(way, running).await {
                Ok((few, many)) => {
                    alone.values.push(few);
                    crowded.values.push(many);
                }
                Err(error) => crowded.missing = Some(error.to_string()),
            },
            None => crowded.missing = one.way.as_ref().err().cloned(),
        }
        before.push(alone);
        after.push(crowded);
    }
    table.series.extend(before);
    table.series.extend(after);
}

async fn crowd(way: &Way, running: &Running) -> Fallible<(f64, f64)> {
    let hidden = "the kernel does not show its memory";
    let few = running.memory().ok_or(hidden)?;
    let mut links: Vec<Link> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut link = way.open().await?;
        link.ask(way).await?;
        links.push(link);
    }
    let many = running.memory().ok_or(hidden)?;
    // Some hang up on who says nothing, and then the figure is of fewer.
    match links.iter().filter(|link| link.is_closed()).count() {
        0 => Ok((few, many)),
        closed => Err(format!("it closed {closed} of {CONNECTIONS} connections by itself").into()),
    }
}
