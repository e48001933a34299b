//! Reads a text file that someone else may have chosen: never a device or a pipe, never more than it should hold.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The largest file that is read.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a regular file, following links: a link to a device would give text without end, and a pipe would never open.
pub fn read_text_file(path: &Path) -> io::Result<String> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    Ok(text)
}

/// As [`read_text_file`]; `None` if there is no file.
pub fn read_optional_text_file(path: &Path) -> io::Result<Option<String>> {
    match read_text_file(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_a_sane_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("text"), "a\n").unwrap();
        std::os::unix::fs::symlink("text", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::fs::File::create(at("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        std::fs::write(at("binary"), [0xff, 0xfe]).unwrap();
        for (name, want) in [
            ("text", Ok("a\n")),
            ("link", Ok("a\n")),
            ("zero", Err("it is not a regular file")),
            ("pipe", Err("it is not a regular file")),
            ("large", Err("it is larger than 16 MiB")),
            ("binary", Err("stream did not contain valid UTF-8")),
            ("", Err("Is a directory (os error 21)")),
        ] {
            let read = read_text_file(&at(name)).map_err(|error| error.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), want, "{name}");
        }
        assert_eq!(read_optional_text_file(&at("missing")).unwrap(), None);
        assert!(read_optional_text_file(&at("zero")).is_err());
    }
}
