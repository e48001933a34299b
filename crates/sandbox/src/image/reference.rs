//! Parses how the configuration names an image. Does not check whether the image exists.

use std::fmt;
use std::path::PathBuf;

use ralph_core::text::did_you_mean;
use serde::{Deserialize, Serialize};

use super::ImageError;

const OCI: &str = "oci";
const ARCHIVE: &str = "docker-archive";
const ROOTFS: &str = "rootfs";

/// An image on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ImageReference {
    /// An OCI image layout. As in skopeo, the part after the second colon is the tag, so the path has no colon.
    Oci { dir: PathBuf, tag: Option<String> },
    /// An archive written by `docker save`, compressed or not.
    DockerArchive { file: PathBuf },
    /// A directory that is used directly, read-only.
    Rootfs { dir: PathBuf },
}

impl ImageReference {
    /// Parses `oci:DIR[:TAG]`, `docker-archive:FILE` or `rootfs:DIR`.
    pub fn parse(given: &str) -> Result<Self, ImageError> {
        let refused = |why| ImageError::Reference { given: super::error::printable(given.as_bytes()), why };
        if given.is_empty() {
            return Err(refused("it is empty"));
        }
        if given.contains('\0') {
            return Err(refused("it holds a NUL byte"));
        }
        let (scheme, rest) = match given.split_once(':') {
            Some((scheme, rest)) if !scheme.contains('/') => (scheme, rest),
            _ if looks_like_a_path(given) => return Err(refused("it does not say what kind of image the path is")),
            _ => return Err(ImageError::NotLocal { given: given.to_owned() }),
        };
        match scheme {
            OCI => {
                let (dir, tag) = match rest.split_once(':') {
                    Some((dir, tag)) => (dir, Some(tag)),
                    None => (rest, None),
                };
                match (dir, tag) {
                    ("", _) => Err(refused("the directory is missing")),
                    (_, Some("")) => Err(refused("the tag after the colon is missing")),
                    (_, Some(tag)) if tag.chars().any(|c| c.is_whitespace() || c.is_control()) => {
                        Err(refused("a tag has no spaces"))
                    }
                    (dir, tag) => Ok(Self::Oci { dir: dir.into(), tag: tag.map(str::to_owned) }),
                }
            }
            ARCHIVE if rest.is_empty() => Err(refused("the file is missing")),
            ARCHIVE => Ok(Self::DockerArchive { file: rest.into() }),
            ROOTFS if rest.is_empty() => Err(refused("the directory is missing")),
            ROOTFS => Ok(Self::Rootfs { dir: rest.into() }),
            "oci-archive" => Err(refused("`docker-archive` reads an OCI layout in a tar too")),
            "docker" if rest.starts_with("//") => Err(ImageError::NotLocal { given: given.to_owned() }),
            "docker" | "docker-daemon" | "containers-storage" | "dir" | "file" | "http" | "https" => {
                Err(refused("this kind of image is unknown"))
            }
            other if did_you_mean(other, [OCI, ARCHIVE, ROOTFS]).is_some() => {
                Err(refused("this kind of image is unknown"))
            }
            // The rest are names such as `ubuntu:24.04`.
            _ => Err(ImageError::NotLocal { given: given.to_owned() }),
        }
    }
}

fn looks_like_a_path(given: &str) -> bool {
    given.starts_with(['/', '.', '~']) || given.contains(".tar") || given.contains(".tgz")
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci { dir, tag: None } => write!(f, "{OCI}:{}", dir.display()),
            Self::Oci { dir, tag: Some(tag) } => write!(f, "{OCI}:{}:{tag}", dir.display()),
            Self::DockerArchive { file } => write!(f, "{ARCHIVE}:{}", file.display()),
            Self::Rootfs { dir } => write!(f, "{ROOTFS}:{}", dir.display()),
        }
    }
}

impl TryFrom<String> for ImageReference {
    type Error = ImageError;

    fn try_from(given: String) -> Result<Self, ImageError> {
        Self::parse(&given)
    }
}

impl From<ImageReference> for String {
    fn from(reference: ImageReference) -> Self {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(given: &str, want: Result<ImageReference, &str>) {
        assert_eq!(
            ImageReference::parse(given).map_err(|error| error.to_string()),
            want.map_err(str::to_owned),
            "{given:?}"
        );
    }

    fn oci(dir: &str, tag: Option<&str>) -> ImageReference {
        ImageReference::Oci { dir: dir.into(), tag: tag.map(str::to_owned) }
    }

    #[test]
    fn references() {
        check("oci:base", Ok(oci("base", None)));
        check("oci:/srv/base:v1", Ok(oci("/srv/base", Some("v1"))));
        check("oci:./b:docker.io/library/ubuntu:24.04", Ok(oci("./b", Some("docker.io/library/ubuntu:24.04"))));
        check("docker-archive:a:b.tar", Ok(ImageReference::DockerArchive { file: "a:b.tar".into() }));
        check("rootfs:/srv/root", Ok(ImageReference::Rootfs { dir: "/srv/root".into() }));
    }

    #[test]
    fn refusals() {
        check("", Err("`` cannot be the image of a sandbox: it is empty"));
        check("oci:", Err("`oci:` cannot be the image of a sandbox: the directory is missing"));
        check("oci::v1", Err("`oci::v1` cannot be the image of a sandbox: the directory is missing"));
        check("oci:d:", Err("`oci:d:` cannot be the image of a sandbox: the tag after the colon is missing"));
        check("oci:d:a b", Err("`oci:d:a b` cannot be the image of a sandbox: a tag has no spaces"));
        check("docker-archive:", Err("`docker-archive:` cannot be the image of a sandbox: the file is missing"));
        check("rootfs:", Err("`rootfs:` cannot be the image of a sandbox: the directory is missing"));
        check("rootfs:a\0b", Err("`rootfs:ab` cannot be the image of a sandbox: it holds a NUL byte"));
        check(
            "./base.tar",
            Err("`./base.tar` cannot be the image of a sandbox: it does not say what kind of image the path is"),
        );
        check(
            "oci-archive:a.tar",
            Err(
                "`oci-archive:a.tar` cannot be the image of a sandbox: `docker-archive` reads an OCI layout in a tar too",
            ),
        );
        check("rootf:/srv", Err("`rootf:/srv` cannot be the image of a sandbox: this kind of image is unknown"));
        for name in [
            "ubuntu",
            "ubuntu:24.04",
            "rocky:9",
            "node:22",
            "alpine:3",
            "a@sha256:00",
            "ghcr.io/a/b:c",
            "localhost:5000/a",
            "docker://ubuntu:24.04",
        ] {
            let want = format!("`{name}` is the name of an image in a registry, and images are not pulled");
            check(name, Err(&want));
        }
    }

    #[test]
    fn the_hint_for_a_registry_name_says_how_to_save_it_to_a_file() {
        let want = "docker save ubuntu:24.04 -o image.tar (or: skopeo copy docker://ubuntu:24.04 \
                    docker-archive:image.tar), then use `docker-archive:image.tar`";
        for given in ["ubuntu:24.04", "docker://ubuntu:24.04"] {
            assert_eq!(ImageReference::parse(given).unwrap_err().hint().as_deref(), Some(want));
        }
        let want = "use `oci:DIR`, `oci:DIR:TAG`, `docker-archive:FILE` or `rootfs:DIR`";
        assert_eq!(ImageReference::parse("./a.tar").unwrap_err().hint().as_deref(), Some(want));
    }

    proptest! {
        #[test]
        fn accepted_references_round_trip(given in "(oci:|docker-archive:|rootfs:)?[a-z:/. é\0\\-]{0,12}") {
            if let Ok(reference) = ImageReference::parse(&given) {
                prop_assert_eq!(reference.to_string(), given);
            }
        }
    }
}
