//! Measures a hundred sandboxes at once: the time until all have run a command, the memory of each while it idles,
//! and the time until all are destroyed.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use ralph_sandbox::embedded::EmbeddedBackend;
use ralph_sandbox::{Backend as _, Sandbox};
use ralph_testkit::bench::{BenchResult, FigureTable, FigureTarget, read_kib};
use tokio::task::JoinSet;

use crate::latency::{run, spec};
use crate::peers::elapsed_ms;

const SANDBOX_COUNT: usize = 100;
/// Memory of our own processes in an idle sandbox.
const MAX_MIB: f64 = 4.0;

pub(crate) async fn measure(table: &mut FigureTable, name: &str, backend: Arc<EmbeddedBackend>) -> BenchResult<()> {
    let (kernel, own) = (kernel_kib(), read_kib("/proc/self/smaps_rollup", "Pss:"));
    let began = Instant::now();
    let mut all: Vec<Arc<dyn Sandbox>> = Vec::new();
    let mut making = JoinSet::new();
    for n in 0..SANDBOX_COUNT {
        let backend = backend.clone();
        making.spawn(async move {
            let sandbox = backend.create(&spec(&format!("crowd-{n}"))).await.map_err(|error| error.to_string())?;
            run(&*sandbox, &["/bin/true"]).await.map_err(|error| error.to_string())?;
            Ok::<_, String>(sandbox)
        });
    }
    let mut failures = Vec::new();
    while let Some(made) = making.join_next().await {
        match made? {
            Ok(sandbox) => all.push(sandbox),
            Err(error) => failures.push(error),
        }
    }
    table.add(format!("{name}: {SANDBOX_COUNT} at once, all created and used"), elapsed_ms(began), "ms");
    report_memory(table, name, all.len(), kernel, own);
    let began = Instant::now();
    let mut ending = JoinSet::new();
    for sandbox in all {
        ending.spawn(async move { sandbox.destroy().await.map_err(|error| error.to_string()) });
    }
    while let Some(ended) = ending.join_next().await {
        failures.extend(ended?.err());
    }
    table.add(format!("{name}: {SANDBOX_COUNT} at once, all destroyed"), elapsed_ms(began), "ms");
    table.add_with_target(format!("{name}: {SANDBOX_COUNT} at once, failures"), failures.len() as f64, 0.0, "");
    match failures.first() {
        Some(first) => {
            Err(format!("{} of {SANDBOX_COUNT} sandboxes failed, the first: {first}", failures.len()).into())
        }
        None => Ok(()),
    }
}

fn report_memory(table: &mut FigureTable, name: &str, count: usize, kernel: f64, own: Option<f64>) {
    let title = format!("{name}: memory of an idle sandbox");
    let pids = launcher_pids();
    let sizes: Option<Vec<f64>> =
        pids.iter().map(|pid| read_kib(&format!("/proc/{pid}/smaps_rollup"), "Pss:")).collect();
    let size = match sizes {
        // Two for each, the outer process and process 1: any other number is a wrong count.
        Some(sizes) if sizes.len() == 2 * count && count > 0 => Ok(sizes.iter().sum::<f64>() / count as f64 / 1024.0),
        Some(sizes) => Err(format!("{} processes were found", sizes.len())),
        None => Err("the kernel shows the memory of process 1 to root alone".to_owned()),
    };
    table.add_result(title, size, FigureTarget::AtMost(MAX_MIB), "MiB");
    let each = |kib: f64| kib.max(0.0) / count.max(1) as f64 / 1024.0;
    if let (Some(before), Some(after)) = (own, read_kib("/proc/self/smaps_rollup", "Pss:")) {
        table.add(format!("{name}: the supervisor's share of it"), each(after - before), "MiB");
    }
    table.add(format!("{name}: the kernel's share of it, in total"), each(kernel_kib() - kernel), "MiB");
}

/// Returns the memory that the kernel uses itself: structures, stacks, page tables, and per-processor data.
fn kernel_kib() -> f64 {
    ["Slab:", "KernelStack:", "PageTables:", "Percpu:"].iter().filter_map(|name| read_kib("/proc/meminfo", name)).sum()
}

/// Returns the launchers that this process has started and that have built a cage, and process 1 of each. A spare one
/// has a process 1 too, but it waits for its plan and has no more seccomp filters than this process.
fn launcher_pids() -> Vec<u32> {
    let children = |pid: &str| -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        lists
            .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
            .collect()
    };
    let filters = |pid: &str| read_kib(&format!("/proc/{pid}/status"), "Seccomp_filters:");
    let is_caged = |pid: &u32| filters(&pid.to_string()) > filters("self");
    let of_cage = |outer: u32| {
        let inner: Vec<u32> = children(&outer.to_string()).into_iter().filter(is_caged).collect();
        let outer = (!inner.is_empty()).then_some(outer);
        outer.into_iter().chain(inner)
    };
    children("self").into_iter().flat_map(of_cage).collect()
}
