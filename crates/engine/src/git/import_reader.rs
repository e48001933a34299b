//! Reads what an import contains, within its limits: its commits, and of each new file what the checks must know.
//!
//! Every file is read once, however many commits contain it.

use std::collections::HashMap;

use super::import::{ImportFailure, ImportLimits, ImportQuantity, ImportRefusal, too_large};
use super::object_facts::{
    BlobFacts, BlobUses, CommitTextFacts, ComparedSecrets, added_lines, pairs_to_compare, wanted_blobs,
};
use super::object_quarantine::{ObjectQuarantine, ObjectStep, ObjectVisitor, WALKING};
use super::raw_diff::{self, CommitChanges};
use super::{Error, SecretScan, Sha};

/// Reads the objects of one import.
#[derive(Clone, Copy)]
pub(super) struct ImportReader<'a> {
    pub(super) quarantine: &'a ObjectQuarantine<'a>,
    pub(super) limits: ImportLimits,
    pub(super) secrets: SecretScan<'a>,
}

impl ImportReader<'_> {
    /// Lists the new commits with their changes, oldest first.
    pub(super) async fn commits(&self, sha: &Sha, base: &Sha) -> Result<Vec<CommitChanges>, ImportFailure> {
        let limits = self.limits;
        let done = self.quarantine.log(sha, base, u64::from(limits.commits) + 1, LOG_CAP).await?;
        if done.cut {
            return Err(too_large(ImportQuantity::CommitBytes, LOG_CAP as u64));
        }
        if done.code != 0 {
            return Err(ImportRefusal::Broken { said: done.stderr_tail() }.into());
        }
        if raw_diff::count_changes(&done.stdout) > limits.changes as usize {
            return Err(too_large(ImportQuantity::Changes, limits.changes));
        }
        let mut commits = raw_diff::parse_log(&done.stdout).ok_or(Error::UnexpectedOutput { doing: WALKING })?;
        commits.reverse();
        Ok(commits)
    }

    /// Searches the whole text of every commit: headers that no format prints, such as `gpgsig` or invented ones, are
    /// pushed too.
    pub(super) async fn commit_texts(
        &self,
        commits: &[CommitChanges],
    ) -> Result<HashMap<Sha, CommitTextFacts>, ImportFailure> {
        let mut unique: Vec<&CommitChanges> = commits.iter().collect();
        // A merge is listed once for each parent.
        unique.dedup_by_key(|commit| &commit.sha);
        let names: Vec<&Sha> = unique.iter().map(|commit| &commit.sha).collect();
        let mut visitor = CommitVisitor {
            commits: &unique,
            secrets: self.secrets,
            bytes: 0,
            too_large: false,
            texts: HashMap::new(),
        };
        self.quarantine.visit_objects(&names, &mut visitor).await??;
        if visitor.too_large {
            return Err(too_large(ImportQuantity::CommitBytes, COMMITS_CAP));
        }
        Ok(visitor.texts)
    }

    /// Reads every new blob once.
    pub(super) async fn blobs(&self, commits: &[CommitChanges]) -> Result<HashMap<Sha, BlobFacts>, ImportFailure> {
        let wanted = wanted_blobs(commits);
        let names: Vec<&Sha> = wanted.iter().map(|(sha, _)| sha).collect();
        // Most imports are small and need one git process; the rest of a large one is measured first.
        let mut visitor = BlobVisitor {
            wanted: &wanted,
            secrets: self.secrets,
            large: self.limits.large_file,
            unmeasured_room: Some(SMALL_IMPORT_BYTES),
            new_bytes: 0,
            link_bytes: 0,
            facts: HashMap::new(),
        };
        self.quarantine.visit_objects(&names, &mut visitor).await??;
        let done = visitor.facts.len();
        if let Some(rest) = names.get(done..).filter(|rest| !rest.is_empty()) {
            let sizes = self.quarantine.sizes(rest).await??;
            let mut small = Vec::new();
            for (sha, uses) in wanted.iter().skip(done) {
                let size = sizes.get(sha).copied().unwrap_or_default();
                visitor.count(*uses, size);
                if size > self.limits.large_file {
                    visitor.facts.insert(sha.clone(), BlobFacts::unread(size));
                } else {
                    small.push((sha.clone(), *uses));
                }
            }
            self.check_new_bytes(visitor.new_bytes)?;
            let names: Vec<&Sha> = small.iter().map(|(sha, _)| sha).collect();
            let mut visitor = BlobVisitor { wanted: &small, unmeasured_room: None, ..visitor };
            self.quarantine.visit_objects(&names, &mut visitor).await??;
            return Ok(visitor.facts);
        }
        self.check_new_bytes(visitor.new_bytes)?;
        Ok(visitor.facts)
    }

    fn check_new_bytes(&self, bytes: u64) -> Result<(), ImportFailure> {
        let limit = self.limits.unpacked_bytes;
        if bytes > limit { Err(too_large(ImportQuantity::UnpackedBytes, limit)) } else { Ok(()) }
    }

    /// Searches again, in their added lines only, the blobs that have a secret and replaced another one. After as many
    /// bytes as an import may have, the secrets that are left count as new.
    pub(super) async fn compare(
        &self,
        commits: &[CommitChanges],
        blobs: &HashMap<Sha, BlobFacts>,
    ) -> Result<ComparedSecrets, ImportFailure> {
        let pairs = pairs_to_compare(commits, blobs);
        let names: Vec<&Sha> = pairs.iter().flat_map(|(old, new)| [old, new]).collect();
        let mut visitor = PairVisitor {
            pairs: &pairs,
            secrets: self.secrets,
            large: self.limits.large_file,
            room: self.limits.unpacked_bytes,
            old: Vec::new(),
            compared: ComparedSecrets::new(),
        };
        self.quarantine.visit_objects(&names, &mut visitor).await??;
        Ok(visitor.compared)
    }
}

struct CommitVisitor<'a> {
    commits: &'a [&'a CommitChanges],
    secrets: SecretScan<'a>,
    bytes: u64,
    too_large: bool,
    texts: HashMap<Sha, CommitTextFacts>,
}

impl ObjectVisitor for CommitVisitor<'_> {
    fn choose(&mut self, _index: usize, size: u64) -> ObjectStep {
        self.bytes = self.bytes.saturating_add(size);
        self.too_large = self.bytes > COMMITS_CAP;
        if self.too_large { ObjectStep::End } else { ObjectStep::Read }
    }

    fn visit(&mut self, index: usize, content: &[u8]) {
        let Some(commit) = self.commits.get(index) else { return };
        let text = [commit.metadata.as_slice(), content].join(&b'\n');
        self.texts.insert(commit.sha.clone(), CommitTextFacts::of(&text, self.secrets));
    }
}

struct BlobVisitor<'a> {
    wanted: &'a [(Sha, BlobUses)],
    secrets: SecretScan<'a>,
    large: u64,
    /// How many bytes may still be read without having been measured; `None` once all are measured.
    unmeasured_room: Option<u64>,
    new_bytes: u64,
    link_bytes: usize,
    facts: HashMap<Sha, BlobFacts>,
}

impl BlobVisitor<'_> {
    fn count(&mut self, uses: BlobUses, size: u64) {
        if uses.new {
            self.new_bytes = self.new_bytes.saturating_add(size);
        }
    }
}

impl ObjectVisitor for BlobVisitor<'_> {
    fn choose(&mut self, index: usize, size: u64) -> ObjectStep {
        let Some((sha, uses)) = self.wanted.get(index) else { return ObjectStep::End };
        if let Some(room) = self.unmeasured_room {
            let Some(left) = room.checked_sub(size) else { return ObjectStep::End };
            self.unmeasured_room = Some(left);
            self.count(*uses, size);
        }
        if size > self.large {
            self.facts.insert(sha.clone(), BlobFacts::unread(size));
            return ObjectStep::Skip;
        }
        ObjectStep::Read
    }

    fn visit(&mut self, index: usize, content: &[u8]) {
        let Some((sha, uses)) = self.wanted.get(index) else { return };
        let mut facts = BlobFacts::of(content, *uses, self.secrets);
        if let Some(link) = &mut facts.link {
            self.link_bytes = self.link_bytes.saturating_add(link.shown.len());
            if self.link_bytes > LINKS_CAP {
                "?".clone_into(&mut link.shown);
                link.shown.shrink_to_fit();
            }
        }
        self.facts.insert(sha.clone(), facts);
    }
}

/// Sees old and new blobs in turn.
struct PairVisitor<'a> {
    pairs: &'a [(Sha, Sha)],
    secrets: SecretScan<'a>,
    large: u64,
    /// How many bytes may still be compared.
    room: u64,
    /// Empty if it is too large to be read.
    old: Vec<u8>,
    compared: ComparedSecrets,
}

impl ObjectVisitor for PairVisitor<'_> {
    fn choose(&mut self, index: usize, size: u64) -> ObjectStep {
        if index.is_multiple_of(2) {
            self.old.clear();
            if size > self.large {
                return ObjectStep::Skip;
            }
        }
        match self.room.checked_sub(size) {
            Some(room) => {
                self.room = room;
                ObjectStep::Read
            }
            None => ObjectStep::End,
        }
    }

    fn visit(&mut self, index: usize, content: &[u8]) {
        if index.is_multiple_of(2) {
            self.old.extend_from_slice(content);
        } else if let Some(pair) = self.pairs.get(index / 2) {
            self.compared.insert(pair.clone(), (self.secrets)(&added_lines(&self.old, content)));
        }
    }
}

/// How large the list of all changes may be, with the messages of the commits.
const LOG_CAP: usize = 64 << 20;

/// How large all imported commits may be together, without their files.
const COMMITS_CAP: u64 = 16 << 20;
const SMALL_IMPORT_BYTES: u64 = 32 << 20;

/// How much text of link targets is kept to be shown.
const LINKS_CAP: usize = 8 << 20;
