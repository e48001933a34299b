//! Names for the hosts that package managers need, so that nobody has to remember them.

use super::rule::Rule;

/// A name that stands for several rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    pub rules: &'static [&'static str],
}

/// Every preset. Upload hosts are left out where a registry has its own.
pub const PRESETS: &[Preset] = &[
    Preset { name: "npm", rules: &["registry.npmjs.org", "registry.yarnpkg.com"] },
    Preset { name: "pypi", rules: &["pypi.org", "files.pythonhosted.org"] },
    Preset { name: "crates", rules: &["index.crates.io", "static.crates.io"] },
    // apt checks signatures itself and is set up for plain HTTP nearly everywhere.
    Preset {
        name: "debian",
        rules: &["deb.debian.org", "deb.debian.org:80", "security.debian.org", "security.debian.org:80"],
    },
    // Clone and fetch, archives and raw files; a push is another request and stays out.
    Preset {
        name: "github-read",
        rules: &[
            "GET github.com/*",
            "POST github.com/*/*/git-upload-pack",
            "GET api.github.com/*",
            "GET codeload.github.com/*",
            "GET raw.githubusercontent.com/*",
            "GET objects.githubusercontent.com/*",
            "GET release-assets.githubusercontent.com/*",
        ],
    },
    Preset { name: "go", rules: &["proxy.golang.org", "sum.golang.org"] },
    Preset { name: "rubygems", rules: &["rubygems.org", "index.rubygems.org"] },
    Preset { name: "maven", rules: &["repo.maven.apache.org", "repo1.maven.org"] },
    Preset { name: "nuget", rules: &["api.nuget.org"] },
    Preset {
        name: "docker-hub",
        rules: &["registry-1.docker.io", "auth.docker.io", "production.cloudflare.docker.com"],
    },
];

/// Returns the preset of that name.
pub(super) fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

pub(super) fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// Writes rules as a person would: a preset's name instead of all its rules.
pub fn shorten(rules: &[Rule]) -> Vec<String> {
    let mut texts: Vec<String> = rules.iter().map(ToString::to_string).collect();
    let mut short = Vec::new();
    for preset in PRESETS {
        if preset.rules.iter().all(|rule| texts.iter().any(|text| text == rule)) {
            texts.retain(|text| !preset.rules.contains(&text.as_str()));
            short.push(preset.name.to_owned());
        }
    }
    short.extend(texts);
    short
}
