//! Draws values in milliseconds as bars on a logarithmic scale, in colours that are readable on light and dark.

use std::fmt::Write as _;

const LABEL_WIDTH: f64 = 170.0;
const CHART_WIDTH: f64 = 480.0;
const BAR_HEIGHT: f64 = 22.0;
const TEXT_COLOUR: &str = "#7d8590";
const OWN_COLOUR: &str = "#3081f7";
const PEER_COLOUR: &str = "#9a9fa6";

/// Bars in groups, on one logarithmic scale.
#[derive(Debug)]
pub struct BarChart<'a> {
    /// The text for screen readers.
    pub label: &'a str,
    /// The part of the scale that is always shown, in ms.
    pub scale: (f64, f64),
    pub format_ms: fn(f64) -> String,
    /// The bars; those of a group are consecutive.
    pub bars: Vec<ChartBar<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct ChartBar<'a> {
    pub group: &'a str,
    pub name: &'a str,
    /// In ms.
    pub value: Option<f64>,
    /// Drawn in the colour of the bench's subject.
    pub is_own: bool,
}

impl BarChart<'_> {
    /// Draws the chart.
    pub fn svg(&self) -> String {
        let Self { label, scale: (least, most), format_ms, bars } = self;
        let values = || bars.iter().filter_map(|bar| bar.value);
        // Whole powers of ten around all values.
        let low = values().fold(*least, f64::min).log10().floor();
        let high = values().fold(*most, f64::max).log10().ceil();
        let place = |ms: f64| CHART_WIDTH * (ms.log10() - low) / (high - low);
        let mut body = String::new();
        let mut put = |line: String| writeln!(body, "{line}").expect("writing to a String cannot fail");
        let mut y = 10.0;
        let mut group = "";
        for bar in bars {
            if bar.group != group {
                group = bar.group;
                y += 22.0;
                put(format!(r#"<text x="8" y="{y:.0}" font-weight="bold">{}</text>"#, escape_xml(group)));
                y += 8.0;
            }
            let middle = y + BAR_HEIGHT * 0.7;
            put(format!(
                r#"<text x="{:.0}" y="{middle:.0}" text-anchor="end">{}</text>"#,
                LABEL_WIDTH - 8.0,
                escape_xml(bar.name)
            ));
            match bar.value {
                Some(value) => {
                    let (wide, colour) = (place(value).max(1.0), if bar.is_own { OWN_COLOUR } else { PEER_COLOUR });
                    put(format!(
                        r#"<rect x="{LABEL_WIDTH:.0}" y="{:.0}" width="{wide:.1}" height="{:.0}" rx="2" fill="{colour}"/>"#,
                        y + 2.0,
                        BAR_HEIGHT - 4.0
                    ));
                    put(format!(
                        r#"<text x="{:.0}" y="{middle:.0}">{}</text>"#,
                        LABEL_WIDTH + wide + 6.0,
                        format_ms(value)
                    ));
                }
                None => {
                    put(format!(
                        r#"<text x="{LABEL_WIDTH:.0}" y="{middle:.0}" font-style="italic">not measured</text>"#
                    ));
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
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{label}">
<g font-family="system-ui,sans-serif" font-size="13" fill="{TEXT_COLOUR}">
{axis}{body}</g>
</svg>
"#
        )
    }
}

/// Escapes text for XML.
fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('`', "")
}
