//! The medians as bars on a logarithmic scale, in colours that can be read on light and on dark.

use std::fmt::Write as _;

use crate::latency::{FIRST, FURTHER};
use crate::report::SandboxBenchReport;
use crate::run::EMBEDDED;
use crate::series::SandboxBenchSeries;

const LABEL_WIDTH: f64 = 170.0;
const CHART_WIDTH: f64 = 480.0;
const BAR_HEIGHT: f64 = 22.0;
const TEXT_COLOUR: &str = "#7d8590";
const EMBEDDED_COLOUR: &str = "#3081f7";
const PEER_COLOUR: &str = "#9a9fa6";

pub(crate) fn svg(table: &SandboxBenchReport) -> String {
    let shown: Vec<&SandboxBenchSeries> =
        table.series.iter().filter(|series| [FIRST, FURTHER].contains(&series.group)).collect();
    let medians = || shown.iter().filter_map(|series| series.p50());
    // Whole powers of ten around everything.
    let low = medians().fold(1.0, f64::min).log10().floor();
    let high = medians().fold(10.0, f64::max).log10().ceil();
    let place = |ms: f64| CHART_WIDTH * (ms.log10() - low) / (high - low);
    let mut body = String::new();
    let mut put = |line: String| writeln!(body, "{line}").expect("writing to a String cannot fail");
    let mut y = 10.0;
    let mut group = "";
    for series in shown {
        if series.group != group {
            group = series.group;
            y += 22.0;
            put(format!(r#"<text x="8" y="{y:.0}" font-weight="bold">{}</text>"#, escape_xml(group)));
            y += 8.0;
        }
        let middle = y + BAR_HEIGHT * 0.7;
        put(format!(
            r#"<text x="{:.0}" y="{middle:.0}" text-anchor="end">{}</text>"#,
            LABEL_WIDTH - 8.0,
            escape_xml(&series.name)
        ));
        match series.p50() {
            Some(p50) => {
                let (wide, colour) = (
                    place(p50).max(1.0),
                    if series.name.starts_with(EMBEDDED) { EMBEDDED_COLOUR } else { PEER_COLOUR },
                );
                put(format!(
                    r#"<rect x="{LABEL_WIDTH:.0}" y="{:.0}" width="{wide:.1}" height="{:.0}" rx="2" fill="{colour}"/>"#,
                    y + 2.0,
                    BAR_HEIGHT - 4.0
                ));
                put(format!(r#"<text x="{:.0}" y="{middle:.0}">{}</text>"#, LABEL_WIDTH + wide + 6.0, format_ms(p50)));
            }
            None => {
                put(format!(r#"<text x="{LABEL_WIDTH:.0}" y="{middle:.0}" font-style="italic">not available</text>"#))
            }
        }
        y += BAR_HEIGHT;
    }
    let bottom = y + 8.0;
    let mut axis = String::new();
    let mut power = low;
    while power <= high {
        let x = LABEL_WIDTH + place(10_f64.powf(power));
        writeln!(
            axis,
            r#"<line x1="{x:.0}" y1="36" x2="{x:.0}" y2="{bottom:.0}" stroke="{TEXT_COLOUR}" stroke-opacity="0.25"/><text x="{x:.0}" y="{:.0}" text-anchor="middle" font-size="11">{}</text>"#,
            bottom + 14.0,
            format_ms(10_f64.powf(power))
        )
        .expect("writing to a String cannot fail");
        power += 1.0;
    }
    let (width, height) = (LABEL_WIDTH + CHART_WIDTH + 90.0, bottom + 24.0);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="Median times in milliseconds, logarithmic">
<g font-family="system-ui,sans-serif" font-size="13" fill="{TEXT_COLOUR}">
{axis}{body}</g>
</svg>
"#
    )
}

fn format_ms(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

/// Writes words as XML wants them.
fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}
