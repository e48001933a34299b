//! Names for the groups of hosts that package managers need.

use super::rule::PolicyRule;

/// A name that stands for several rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPreset {
    pub name: &'static str,
    pub rules: &'static [&'static str],
}

/// Every preset. Upload hosts are left out where a registry has its own.
pub const PRESETS: &[HostPreset] = &[
    HostPreset { name: "npm", rules: &["registry.npmjs.org", "registry.yarnpkg.com"] },
    HostPreset { name: "pypi", rules: &["pypi.org", "files.pythonhosted.org"] },
    HostPreset { name: "crates", rules: &["index.crates.io", "static.crates.io"] },
    // apt verifies signatures itself and is configured for plain HTTP nearly everywhere.
    HostPreset {
        name: "debian",
        rules: &["deb.debian.org", "deb.debian.org:80", "security.debian.org", "security.debian.org:80"],
    },
    // Clone and fetch, archives and raw files; a push is a different request and is not included.
    HostPreset {
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
    // The Go proxy redirects clients to a storage bucket of its own for the archives.
    HostPreset {
        name: "go",
        rules: &["proxy.golang.org", "sum.golang.org", "GET storage.googleapis.com/proxy-golang-org-prod/*"],
    },
    HostPreset { name: "rubygems", rules: &["rubygems.org", "index.rubygems.org"] },
    HostPreset { name: "maven", rules: &["repo.maven.apache.org", "repo1.maven.org"] },
    HostPreset { name: "nuget", rules: &["api.nuget.org"] },
    // The registry redirects clients to one of three hosts for the layers.
    HostPreset {
        name: "docker-hub",
        rules: &[
            "registry-1.docker.io",
            "auth.docker.io",
            "production.cloudflare.docker.com",
            "production.cloudfront.docker.com",
            "docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com",
        ],
    },
];

/// Returns the preset with this name.
pub(super) fn find(name: &str) -> Option<&'static HostPreset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

pub(super) fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

/// Returns rules in their short form: a preset's name instead of all its rules.
pub fn shorten(rules: &[PolicyRule]) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use crate::policy::{Policy, PolicyMode, decide_request, expand};

    fn of(preset: &str) -> Policy {
        Policy { mode: PolicyMode::Allowlist, allow: expand(preset).expect("a preset"), deny: Vec::new() }
    }

    /// The requests that clients of each registry send, as the registries document them, and what must stay refused.
    #[test]
    fn presets_cover_the_requests_of_clients() {
        let r2 = "https://docker-images-prod.6aa30f8b08e16409b46e0173d6de2f56.r2.cloudflarestorage.com/registry-v2/b";
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "npm",
                &[
                    "GET https://registry.npmjs.org/left-pad",
                    "GET https://registry.npmjs.org/left-pad/-/left-pad-1.3.0.tgz",
                    "POST https://registry.npmjs.org/-/npm/v1/security/advisories/bulk",
                    "GET https://registry.yarnpkg.com/left-pad",
                ],
                &["GET https://www.npmjs.com/login", "GET http://registry.npmjs.org/left-pad"],
            ),
            (
                "pypi",
                &[
                    "GET https://pypi.org/simple/requests/",
                    "GET https://files.pythonhosted.org/packages/f9/9b/requests-2.32.0-py3-none-any.whl",
                ],
                &["POST https://upload.pypi.org/legacy/", "GET https://test.pypi.org/simple/"],
            ),
            (
                "crates",
                &[
                    "GET https://index.crates.io/config.json",
                    "GET https://index.crates.io/se/rd/serde",
                    "GET https://static.crates.io/crates/serde/1.0.0/download",
                ],
                &["PUT https://crates.io/api/v1/crates/new"],
            ),
            (
                "debian",
                &[
                    "GET http://deb.debian.org/debian/dists/stable/InRelease",
                    "GET https://deb.debian.org/debian-security/dists/stable-security/InRelease",
                    "GET http://security.debian.org/debian-security/dists/stable-security/InRelease",
                ],
                &["GET http://ftp.upload.debian.org/"],
            ),
            (
                "github-read",
                &[
                    "GET https://github.com/o/r/info/refs",
                    "POST https://github.com/o/r/git-upload-pack",
                    "GET https://api.github.com/repos/o/r/releases/latest",
                    "GET https://codeload.github.com/o/r/tar.gz/refs/heads/main",
                    "GET https://raw.githubusercontent.com/o/r/main/README.md",
                    "GET https://release-assets.githubusercontent.com/github-production-release-asset/1/2",
                ],
                &[
                    "POST https://github.com/o/r/git-receive-pack",
                    "POST https://api.github.com/repos/o/r/issues",
                    "PUT https://api.github.com/repos/o/r/contents/x",
                    "POST https://uploads.github.com/repos/o/r/releases/1/assets",
                    "GET https://gist.github.com/o",
                ],
            ),
            (
                "go",
                &[
                    "GET https://proxy.golang.org/google.golang.org/api/@v/v0.162.0.zip",
                    "GET https://sum.golang.org/lookup/golang.org/x/sys@v0.1.0",
                    "GET https://storage.googleapis.com/proxy-golang-org-prod/8e29-google.golang.org:api-v0.162.0.zip",
                ],
                &[
                    "GET https://storage.googleapis.com/somebody-elses/x",
                    "PUT https://storage.googleapis.com/proxy-golang-org-prod/x",
                    "POST https://storage.googleapis.com/upload/storage/v1/b/x/o",
                ],
            ),
            (
                "rubygems",
                &[
                    "GET https://rubygems.org/gems/rack-3.0.0.gem",
                    "GET https://index.rubygems.org/versions",
                    "GET https://rubygems.org/quick/Marshal.4.8/rack-3.0.0.gemspec.rz",
                ],
                &["GET https://evilrubygems.org/gems/rack-3.0.0.gem"],
            ),
            (
                "maven",
                &[
                    "GET https://repo.maven.apache.org/maven2/junit/junit/4.13/junit-4.13.pom",
                    "GET https://repo1.maven.org/maven2/junit/junit/4.13/junit-4.13.jar",
                ],
                &["PUT https://oss.sonatype.org/service/local/staging/deploy/maven2/x"],
            ),
            (
                "nuget",
                &[
                    "GET https://api.nuget.org/v3/index.json",
                    "GET https://api.nuget.org/v3-flatcontainer/newtonsoft.json/13.0.3/newtonsoft.json.13.0.3.nupkg",
                ],
                &["PUT https://www.nuget.org/api/v2/package"],
            ),
            (
                "docker-hub",
                &[
                    "GET https://auth.docker.io/token",
                    "GET https://registry-1.docker.io/v2/library/alpine/manifests/latest",
                    "GET https://production.cloudflare.docker.com/registry-v2/docker/registry/v2/blobs/sha256/a/b/data",
                    "GET https://production.cloudfront.docker.com/registry-v2/docker/registry/v2/blobs/sha256/a/b/data",
                    &format!("GET {r2}/data"),
                ],
                &["GET https://somebody-else.r2.cloudflarestorage.com/x", "GET https://hub.docker.com/v2/users/login"],
            ),
        ];
        let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, super::names(), "each preset has its cases");
        for (preset, pass, stay_out) in cases {
            let wanted = pass.iter().map(|ask| (ask, true)).chain(stay_out.iter().map(|ask| (ask, false)));
            for (ask, want) in wanted {
                let (method, url) = ask.split_once(' ').expect("a method");
                let (scheme, rest) = url.split_once("://").expect("a scheme");
                let (host, path) = rest.split_once('/').expect("a path");
                let port = if scheme == "http" { 80 } else { 443 };
                let decision = decide_request(&of(preset), host, port, method, &format!("/{path}"));
                assert_eq!(decision.allowed, want, "{preset}: {ask}");
            }
        }
    }
}
