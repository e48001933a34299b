//! Sends and receives the messages between the supervisor and the launcher: small, with descriptors attached.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// The longest message, and the most descriptors one carries.
const MAX_MESSAGE_BYTES: usize = 8 << 10;
const MAX_DESCRIPTORS: usize = 32;

/// A message of the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LauncherMessage {
    /// The cage is ready. The descriptors are the volumes in the order of the plan, then the listening sockets.
    Ready { landlock: u8, sockets: Vec<EgressSocketKind> },
    /// The cage could not be built.
    Failed { step: String, errno: i32 },
    /// A limit that process 1 enforces was reached.
    Limit { processes: bool, used: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EgressSocketKind {
    Explicit,
    Transparent,
    DnsUdp,
    DnsTcp,
}

/// A program to start, sent in a sealed file together with its descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProgramRequest {
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: String,
    /// Rows and columns, when the program gets a terminal instead of pipes.
    pub(super) terminal: Option<(u16, u16)>,
    /// Whether the first descriptor after the channel is its input.
    pub(super) input: bool,
    /// Whether its processes may not look into or change each other.
    pub(super) separated: bool,
    /// The workspace, if the files that it uses are recorded.
    pub(super) observed: Option<String>,
}

/// A message on a program's own channel, sent as one byte and one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandMessage {
    /// The program could not be started.
    NotStarted(i32),
    Exited(i32),
    Killed(i32),
    /// Its terminal, attached as a descriptor.
    Terminal,
    /// The files that it used, attached as a sealed file.
    Observed,
    /// The limit of processes was reached when it ended.
    ProcessTableFull,
    /// To the command supervisor: terminate or kill the program.
    Terminate,
    Kill,
}

impl CommandMessage {
    pub(super) const SIZE: usize = 5;

    pub(super) fn bytes(self) -> [u8; Self::SIZE] {
        let (kind, number) = match self {
            Self::NotStarted(errno) => (b'N', errno),
            Self::Exited(code) => (b'X', code),
            Self::Killed(signal) => (b'K', signal),
            Self::Terminal => (b'T', 0),
            Self::Observed => (b'O', 0),
            Self::ProcessTableFull => (b'F', 0),
            Self::Terminate => (b'A', 0),
            Self::Kill => (b'E', 0),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    pub(super) fn parse(bytes: [u8; Self::SIZE]) -> Option<Self> {
        let [kind, a, b, c, d] = bytes;
        let number = i32::from_le_bytes([a, b, c, d]);
        Some(match kind {
            b'N' => Self::NotStarted(number),
            b'X' => Self::Exited(number),
            b'K' => Self::Killed(number),
            b'T' => Self::Terminal,
            b'O' => Self::Observed,
            b'F' => Self::ProcessTableFull,
            b'A' => Self::Terminate,
            b'E' => Self::Kill,
            _ => return None,
        })
    }
}

/// Sends one message with its descriptors.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives one message; an empty one means that the other side is gone.
pub(super) fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    receive_up_to(socket, MAX_MESSAGE_BYTES)
}

pub(super) fn receive_up_to(socket: impl AsFd, most: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; most];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    if got.flags.contains(ReturnFlags::TRUNC) || got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was truncated"));
    }
    bytes.truncate(got.bytes);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((bytes, descriptors))
}

/// Writes bytes to a file in memory and seals it against changes.
pub(super) fn write_sealed(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(fd);
    io::Write::write_all(&mut file, bytes)?;
    io::Seek::rewind(&mut file)?;
    super::transient_retry::seal(&file)?;
    Ok(file.into())
}

/// Reads a sealed file from its start.
pub(super) fn read_sealed(fd: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::from(fd);
    let mut bytes = Vec::new();
    io::Seek::rewind(&mut file)?;
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let plain = [
            CommandMessage::Terminal,
            CommandMessage::Observed,
            CommandMessage::ProcessTableFull,
            CommandMessage::Terminate,
            CommandMessage::Kill,
        ];
        for message in [CommandMessage::NotStarted(2), CommandMessage::Exited(255), CommandMessage::Killed(9)]
            .into_iter()
            .chain(plain)
        {
            assert_eq!(CommandMessage::parse(message.bytes()), Some(message));
        }
        assert_eq!(CommandMessage::parse(*b"?\0\0\0\0"), None);
    }

    #[test]
    fn sealed_files_cannot_be_changed() {
        let fd = write_sealed("x", b"plan").expect("memfd");
        let mut file = std::fs::File::from(fd.try_clone().expect("dup"));
        assert!(io::Write::write(&mut file, b"other").is_err());
        assert!(file.set_len(0).is_err());
        assert_eq!(read_sealed(fd).expect("read"), b"plan");
    }
}
