//! Tests what a report looks like as text, as JSON and as a page.

use super::{BenchMachine, BenchPage, BenchPeer, BenchReport, FigureTarget, SampleSeries, SeriesColumn};

const COLUMNS: &[SeriesColumn] = &[
    SeriesColumn::Percentile(50),
    SeriesColumn::Percentile(99),
    SeriesColumn::Added { percent: 50, base: "direct" },
    SeriesColumn::Ratio { base: "direct" },
    SeriesColumn::Samples,
];

fn report() -> BenchReport {
    let machine = BenchMachine {
        date: "2026-01-02".to_owned(),
        kernel: "6.1 x86_64".to_owned(),
        processor: "Fast".to_owned(),
        processors: 2,
        memory_gib: 24.0,
        load: "0.10".to_owned(),
    };
    let series = |group, name: &str, unit, values: &[f64]| SampleSeries {
        values: values.to_vec(),
        ..SampleSeries::new(group, name, unit)
    };
    let mut report = BenchReport {
        command: "cargo xtask bench x".to_owned(),
        machine,
        peers: vec![BenchPeer { name: "nginx".to_owned(), version: "1.22".to_owned() }],
        columns: COLUMNS,
        series: vec![
            series("one call", "direct", "ms", &[0.5, 0.25, 1.0]),
            series("one call", "ralph", "ms", &[1.5]),
            SampleSeries::missing("one call", "nginx", "ms", "it is not installed"),
            series("calls", "direct", "/s", &[2000.0]),
            series("calls", "ralph", "/s", &[1000.0]),
            series("calls", "nginx", "/s", &[]),
        ],
        figures: super::FigureTable::default(),
    };
    report.add_delay("one call", "ralph", "direct", 0.5);
    report.add_ratio("calls", "ralph", "direct", FigureTarget::AtLeast(0.5));
    report.add_ratio("one call", "ralph", "nginx", FigureTarget::AtMost(2.0));
    report.add_ratio("calls", "nginx", "direct", FigureTarget::AtLeast(0.5));
    report.add_ratio("calls", "ralph", "srt", FigureTarget::AtLeast(0.5));
    report.figures.section("memory");
    report.figures.add("files", 3.0, "");
    report.figures.add_with_target("memory of an idle sandbox", 4.0, 4.0, "MiB");
    report
}

#[test]
fn text() {
    let want = "\
2026-01-02 · Linux 6.1 x86_64 · 2 × Fast · 24 GiB · load 0.10
nginx: 1.22

one call                                                                 p50 ms     p99 ms   adds p50   × direct    samples
  direct                                                                  0.500       1.00                  1.00          3
  ralph                                                                    1.50       1.50       1.00       3.00          1
  nginx                                                              NOT MEASURED: it is not installed

calls                                                                    p50 /s     p99 /s   adds p50   × direct    samples
  direct                                                                   2000       2000                  1.00          1
  ralph                                                                    1000       1000                 0.500          1
  nginx                                                              NOT MEASURED: there are no samples

figures
  one call: ralph adds, p50                                                1.00 ms    ≤ 0.500 ms     FAIL
  calls: ralph / direct                                                   0.500 ×     ≥ 0.500 ×      PASS
  one call: ralph / nginx                                                       ×     ≤ 2.00 ×       NOT MEASURED: `nginx`: it is not installed
  calls: nginx / direct                                                         ×     ≥ 0.500 ×      NOT MEASURED: `nginx`: there are no samples
  calls: ralph / srt                                                            ×     ≥ 0.500 ×      NOT MEASURED: `srt` was not measured

memory
  files                                                                    3.00
  memory of an idle sandbox                                                4.00 MiB   ≤ 4.00 MiB     PASS

a target was missed
";
    assert_eq!(report().text(), want);
}

#[test]
fn last_line() {
    #[track_caller]
    fn check(values: &[Result<f64, &str>], want: &str) {
        let mut report = BenchReport::new("", COLUMNS);
        for value in values {
            report.figures.add_result("n", value.map_err(str::to_owned), FigureTarget::AtMost(1.0), "ms");
        }
        assert_eq!(report.text().lines().last(), Some(want), "{values:?}");
    }
    check(&[], "all targets met");
    check(&[Ok(1.0)], "all targets met");
    check(&[Ok(1.0), Err("no"), Err("no")], "no target was missed, 2 not measured");
    check(&[Err("no"), Ok(1.1)], "a target was missed");
}

#[test]
fn json() {
    let mut report = report();
    report.series.retain(|series| series.group == "one call" && series.name != "direct");
    let text = report.json();
    let found: serde_json::Value = serde_json::from_str(&text).expect("the report is JSON");
    let want = serde_json::json!({
        "format": 2,
        "command": "cargo xtask bench x",
        "machine": {
            "date": "2026-01-02", "kernel": "6.1 x86_64", "processor": "Fast", "processors": 2, "memory_gib": 24.0,
            "load": "0.10",
        },
        "peers": [{"name": "nginx", "version": "1.22"}],
        "series": [
            {"group": "one call", "name": "ralph", "unit": "ms", "values": [1.5], "missing": null},
            {"group": "one call", "name": "nginx", "unit": "ms", "values": [], "missing": "it is not installed"},
        ],
        "figures": [
            {
                "section": "figures", "name": "one call: ralph adds, p50", "value": 1.0, "unit": "ms",
                "target": {"at-most": 0.5}, "pass": false, "missing": null,
            },
            {
                "section": "figures", "name": "calls: ralph / direct", "value": 0.5, "unit": "×",
                "target": {"at-least": 0.5}, "pass": true, "missing": null,
            },
            {
                "section": "figures", "name": "one call: ralph / nginx", "value": null, "unit": "×",
                "target": {"at-most": 2.0}, "pass": null, "missing": "`nginx`: it is not installed",
            },
            {
                "section": "figures", "name": "calls: nginx / direct", "value": null, "unit": "×",
                "target": {"at-least": 0.5}, "pass": null, "missing": "`nginx`: there are no samples",
            },
            {
                "section": "figures", "name": "calls: ralph / srt", "value": null, "unit": "×",
                "target": {"at-least": 0.5}, "pass": null, "missing": "`srt` was not measured",
            },
            {
                "section": "memory", "name": "files", "value": 3.0, "unit": "", "target": null, "pass": null,
                "missing": null,
            },
            {
                "section": "memory", "name": "memory of an idle sandbox", "value": 4.0, "unit": "MiB",
                "target": {"at-most": 4.0}, "pass": true, "missing": null,
            },
        ],
        "pass": false,
        "unmeasured": 3,
    });
    assert_eq!(found, want);
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn page() {
    let page = BenchPage {
        name: "x",
        title: "Speed of x",
        introduction: "all are called in turn.",
        chart_label: "Median delays",
        chart: |_| String::new(),
    };
    let want = "\
# Speed of x

Written by `cargo xtask bench x --write docs/bench`: all are called in turn.

![Median delays](x.svg)

- machine: 2026-01-02 · Linux 6.1 x86_64 · 2 × Fast · 24 GiB · load 0.10
- command: `cargo xtask bench x`
- nginx: 1.22

## Figures and their targets

| figure | value | target | |
|---|--:|--:|---|
| one call: ralph adds, p50 | 1.00 ms | ≤ 0.500 ms | FAIL |
| calls: ralph / direct | 0.500 × | ≥ 0.500 × | PASS |
| one call: ralph / nginx | `nginx`: it is not installed | ≤ 2.00 × | NOT MEASURED |
| calls: nginx / direct | `nginx`: there are no samples | ≥ 0.500 × | NOT MEASURED |
| calls: ralph / srt | `srt` was not measured | ≥ 0.500 × | NOT MEASURED |
| files | 3.00 |  |  |
| memory of an idle sandbox | 4.00 MiB | ≤ 4.00 MiB | PASS |

## one call

| | p50 ms | p99 ms | adds p50 | × direct | samples |
|---|--:|--:|--:|--:|--:|
| direct | 0.500 | 1.00 |  | 1.00 | 3 |
| ralph | 1.50 | 1.50 | 1.00 | 3.00 | 1 |
| nginx | NOT MEASURED: it is not installed | | | | |

## calls

| | p50 /s | p99 /s | adds p50 | × direct | samples |
|---|--:|--:|--:|--:|--:|
| direct | 2000 | 2000 |  | 1.00 | 1 |
| ralph | 1000 | 1000 |  | 0.500 | 1 |
| nginx | NOT MEASURED: there are no samples | | | | |
";
    assert_eq!(page.markdown(&report()), want);
}
