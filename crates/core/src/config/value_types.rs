//! Defines the enums and units of the config file.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::text;

/// How strongly a backend isolates the sandbox from the host, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Commands run as the user, on the host: no isolation at all.
    None,
    /// Kernel namespaces, filters and a root built from nothing.
    Namespaces,
    /// A container of a container engine.
    Container,
    /// A virtual machine with its own kernel.
    Machine,
}

impl IsolationLevel {
    /// Returns whether a sandbox is isolated from the host at all.
    pub fn is_isolated(self) -> bool {
        self != Self::None
    }

    /// Returns whether the other level isolates less: not at all, by a shared kernel, by a virtual machine.
    pub fn is_stronger_than(self, other: Self) -> bool {
        let kernel = |level| match level {
            Self::None => 0,
            Self::Namespaces | Self::Container => 1,
            Self::Machine => 2,
        };
        kernel(self) > kernel(other)
    }
}

/// Where sandboxes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Backend")]
pub enum BackendKind {
    Embedded,
    Docker,
    Microvm,
    Tart,
    Daytona,
    Local,
}

impl BackendKind {
    pub const ALL: [Self; 6] = [Self::Embedded, Self::Docker, Self::Microvm, Self::Tart, Self::Daytona, Self::Local];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Docker => "docker",
            Self::Microvm => "microvm",
            Self::Tart => "tart",
            Self::Daytona => "daytona",
            Self::Local => "local",
        }
    }

    /// Returns how strongly the backend isolates from the host.
    pub fn isolation(self) -> IsolationLevel {
        match self {
            Self::Local => IsolationLevel::None,
            Self::Embedded => IsolationLevel::Namespaces,
            Self::Docker => IsolationLevel::Container,
            Self::Microvm | Self::Tart | Self::Daytona => IsolationLevel::Machine,
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no sandbox backend `{name}`")]
pub struct UnknownBackend {
    name: String,
    meant: Option<&'static str>,
}

impl UnknownBackend {
    pub fn hint(&self) -> Option<String> {
        Some(match self.meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the backends are {}", BackendKind::ALL.map(BackendKind::as_str).join(", ")),
        })
    }
}

impl FromStr for BackendKind {
    type Err = UnknownBackend;
    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        Self::ALL.into_iter().find(|backend| backend.as_str() == name).ok_or_else(|| UnknownBackend {
            name: text::strip_control(text::first_line(name, 40)),
            meant: text::did_you_mean(name, Self::ALL.map(Self::as_str)),
        })
    }
}

/// Which toolchains of the user's home a sandbox may see, read-only.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolchainSelection {
    /// All that are found.
    #[default]
    Auto,
    None,
    /// Only those with these names.
    Only(Vec<String>),
}

impl ToolchainSelection {
    /// Returns whether this shows something that `limit` does not.
    pub fn is_wider_than(&self, limit: &Self) -> bool {
        match (self, limit) {
            (_, Self::Auto) | (Self::None, _) => false,
            (Self::Auto, _) => true,
            (Self::Only(names), Self::None) => !names.is_empty(),
            (Self::Only(names), Self::Only(limit)) => names.iter().any(|name| !limit.contains(name)),
        }
    }
}

impl fmt::Display for ToolchainSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Only(names) => f.write_str(&names.join(", ")),
        }
    }
}

impl Serialize for ToolchainSelection {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Only(names) => names.serialize(serializer),
            word => serializer.collect_str(word),
        }
    }
}

impl<'de> Deserialize<'de> for ToolchainSelection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ToolchainSelectionVisitor;
        impl<'de> Visitor<'de> for ToolchainSelectionVisitor {
            type Value = ToolchainSelection;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"auto\", \"none\" or a list of names")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<ToolchainSelection, E> {
                match word {
                    "auto" => Ok(ToolchainSelection::Auto),
                    "none" => Ok(ToolchainSelection::None),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<ToolchainSelection, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element::<String>()? {
                    // A name becomes part of a path on the host.
                    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                        return Err(de::Error::custom("a toolchain name has letters, digits and dashes only"));
                    }
                    names.push(name);
                }
                Ok(ToolchainSelection::Only(names))
            }
        }
        deserializer.deserialize_any(ToolchainSelectionVisitor)
    }
}

/// A text that is not a valid quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUnit {
    #[error("a size is a number with a unit, like \"512m\" or \"8g\"")]
    Size,
    #[error("a number of processors is more than 0 and at most 1024, like \"4\" or \"0.5\"")]
    Cpus,
}

/// A number of bytes, written `512m` or `8g`. Units are binary, as container tools read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(u64);

const UNITS: [(char, u32); 4] = [('t', 40), ('g', 30), ('m', 20), ('k', 10)];

impl ByteSize {
    pub fn bytes(self) -> u64 {
        self.0
    }

    pub(super) const fn mib(mib: u32) -> Self {
        Self((mib as u64) << 20)
    }

    /// Converts gibibytes to a size; `None` if it is not a valid amount.
    pub fn gib(gib: f64) -> Option<Self> {
        let bytes = (gib * 1_073_741_824.0).round();
        // Beyond 2^53 a float cannot represent every number of bytes.
        let sane = (1.0..=9_007_199_254_740_992.0).contains(&bytes);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
        sane.then_some(Self(bytes as u64))
    }
}

impl FromStr for ByteSize {
    type Err = InvalidUnit;
    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        let lower = text.trim().to_ascii_lowercase();
        let short = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
        let (unit, shift) = UNITS.into_iter().find(|(unit, _)| short.ends_with(*unit)).ok_or(InvalidUnit::Size)?;
        let digits = short.strip_suffix(unit).unwrap_or("").trim_end();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidUnit::Size);
        }
        let number: u64 = digits.parse().map_err(|_| InvalidUnit::Size)?;
        number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(Self).ok_or(InvalidUnit::Size)
    }
}

impl TryFrom<String> for ByteSize {
    type Error = InvalidUnit;
    fn try_from(text: String) -> Result<Self, InvalidUnit> {
        text.parse()
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.into_iter().find(|(_, shift)| self.0.is_multiple_of(1 << shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            // Only a fraction of a gibibyte reaches this arm; rounding up keeps the text a valid size.
            None => write!(f, "{}k", self.0.div_ceil(1024)),
        }
    }
}

/// A number of processors in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub struct CpuCount(u32);

impl CpuCount {
    pub fn millis(self) -> u32 {
        self.0
    }

    pub fn new(cpus: f64) -> Result<Self, InvalidUnit> {
        let millis = (cpus * 1000.0).round();
        if !(1.0..=1_024_000.0).contains(&millis) {
            return Err(InvalidUnit::Cpus);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
        Ok(Self(millis as u32))
    }
}

impl FromStr for CpuCount {
    type Err = InvalidUnit;
    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        text.trim().parse().map_err(|_| InvalidUnit::Cpus).and_then(Self::new)
    }
}

impl From<CpuCount> for String {
    fn from(cpus: CpuCount) -> Self {
        cpus.to_string()
    }
}

impl fmt::Display for CpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1000.0)
    }
}

/// Accepts `cpus = "4"` as in container tools, and a plain number, which is what users try first.
impl<'de> Deserialize<'de> for CpuCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CpuCountVisitor;
        impl Visitor<'_> for CpuCountVisitor {
            type Value = CpuCount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of processors")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<CpuCount, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<CpuCount, E> {
                CpuCount::new(number as f64).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<CpuCount, E> {
                CpuCount::new(number as f64).map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<CpuCount, E> {
                CpuCount::new(number).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(CpuCountVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_parsed() {
        for (text, want) in [
            ("8g", Some("8g")),
            ("8GB", Some("8g")),
            ("512 MiB", Some("512m")),
            ("1024m", Some("1g")),
            ("1t", Some("1t")),
            ("0g", None),
            ("8", None),
            ("g", None),
            ("-1g", None),
            ("1.5g", None),
            ("99999999999999999999g", None),
            ("17179869184g", None),
        ] {
            assert_eq!(text.parse::<ByteSize>().ok().map(|size| size.to_string()).as_deref(), want, "{text}");
        }
        assert_eq!(ByteSize::gib(1.5).map(|size| size.to_string()).as_deref(), Some("1536m"));
        for gib in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(ByteSize::gib(gib), None);
        }
    }

    #[test]
    fn processor_counts_are_parsed() {
        for (text, want) in
            [("4", Some(4000)), ("0.5", Some(500)), ("0", None), ("-1", None), ("NaN", None), ("2000", None)]
        {
            assert_eq!(text.parse::<CpuCount>().ok().map(CpuCount::millis), want, "{text}");
        }
    }

    #[test]
    fn backend_names_are_parsed() {
        for backend in BackendKind::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let hint = |name: &str| name.parse::<BackendKind>().expect_err("unknown").hint().expect("a hint");
        assert_eq!(hint("dokcer"), "did you mean `docker`?");
        assert_eq!(hint("zzz"), "the backends are embedded, docker, microvm, tart, daytona, local");
    }

    #[test]
    fn wider_toolchain_selections() {
        let only = |names: &[&str]| ToolchainSelection::Only(names.iter().map(|name| (*name).to_owned()).collect());
        for (ask, limit, want) in [
            (ToolchainSelection::Auto, ToolchainSelection::Auto, false),
            (ToolchainSelection::Auto, ToolchainSelection::None, true),
            (ToolchainSelection::None, ToolchainSelection::None, false),
            (only(&["go"]), ToolchainSelection::Auto, false),
            (only(&["go"]), only(&["go", "cargo"]), false),
            (only(&["nvm"]), only(&["go"]), true),
            (only(&[]), ToolchainSelection::None, false),
        ] {
            assert_eq!(ask.is_wider_than(&limit), want, "{ask} over {limit}");
        }
    }

    proptest! {
        #[test]
        fn sizes_round_trip(text in "\\PC{0,12}|[0-9]{1,20}[kmgt]i?b?") {
            if let Ok(size) = text.parse::<ByteSize>() {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
            let _ = text.parse::<CpuCount>();
        }
    }
}
