//! Signs and checks receipts with the installation's key.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use ralph_core::hash::{hex, unhex};
use ralph_core::identifiers::RunId;
use ralph_core::receipt::{FORMAT, Receipt, ReceiptBody, signed_bytes};

use crate::error::{Error, file_error};
use crate::store::make_private_dirs;

/// The key of this installation.
pub struct SigningKey(Ed25519KeyPair);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

impl SigningKey {
    /// Reads the key, or creates it at first use, readable by its owner only.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        if let Some(key) = Self::load(path)? {
            return Ok(key);
        }
        let mut seed = [0_u8; 32];
        getrandom::fill(&mut seed).map_err(|_| Error::Random)?;
        let dir = path.parent().unwrap_or(Path::new("."));
        make_private_dirs(dir)?;
        let mut unique = [0_u8; 8];
        getrandom::fill(&mut unique).map_err(|_| Error::Random)?;
        let temporary = path.with_extension(hex(&unique));
        let mut out = fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(file_error("create", &temporary))?;
        out.write_all(hex(&seed).as_bytes()).map_err(file_error("write", &temporary))?;
        out.sync_all().map_err(file_error("flush", &temporary))?;
        // Two processes may create the key at once: linking lets exactly one win, and both read the winner's.
        let linked = fs::hard_link(&temporary, path);
        fs::remove_file(&temporary).map_err(file_error("remove", &temporary))?;
        match linked {
            Ok(()) => (),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(file_error("create", path)(error)),
        }
        Self::load(path)?.ok_or_else(|| Error::BadReceipt(format!("the key `{}` vanished", path.display())))
    }

    fn load(path: &Path) -> Result<Option<Self>, Error> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error("read the key", path)(error)),
        };
        let mode = fs::metadata(path).map_err(file_error("read the key", path))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Error::BadReceipt(format!(
                "others can read the key `{}`; run `chmod 600` on it, or remove it to get a new one",
                path.display()
            )));
        }
        let seed = unhex(text.trim()).unwrap_or_default();
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|_| Error::BadReceipt(format!("`{}` is not a key; remove it to get a new one", path.display())))?;
        Ok(Some(Self(pair)))
    }

    /// Returns the public half in hex.
    pub fn public(&self) -> String {
        hex(self.0.public_key().as_ref())
    }

    pub fn sign(&self, body: ReceiptBody) -> Receipt {
        let signature = hex(self.0.sign(&signed_bytes(&body)).as_ref());
        Receipt { format: FORMAT, body, key: self.public(), signature }
    }
}

/// Parses a receipt and checks its signature; `Err` says why it cannot be trusted.
pub fn read(text: &str) -> Result<Receipt, Error> {
    #[derive(serde::Deserialize)]
    struct ReceiptHeader {
        format: u32,
    }
    let bad = |error: serde_json::Error| Error::BadReceipt(format!("it is not a receipt: {error}"));
    let head: ReceiptHeader = serde_json::from_str(text).map_err(bad)?;
    if head.format > FORMAT {
        return Err(Error::BadReceipt(format!("it has format {}, and this ralph reads {FORMAT}", head.format)));
    }
    let receipt: Receipt = serde_json::from_str(text).map_err(bad)?;
    // The id becomes the name of a folder, and a receipt may come from a stranger.
    if RunId::parse(&receipt.body.run).is_err() {
        return Err(Error::BadReceipt("its `run` is not the id of a run".to_owned()));
    }
    let (Some(key), Some(signature)) = (unhex(&receipt.key), unhex(&receipt.signature)) else {
        return Err(Error::BadReceipt("its key or signature is not hex".to_owned()));
    };
    UnparsedPublicKey::new(&ED25519, key)
        .verify(&signed_bytes(&receipt.body), &signature)
        .map_err(|_| Error::BadReceipt("its signature does not match what it says".to_owned()))?;
    Ok(receipt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ralph_core::identifiers::TaskBranch;
    use ralph_core::money::MicroUsd;
    use ralph_core::receipt::ReceiptModel;

    fn body() -> ReceiptBody {
        ReceiptBody {
            run: "0123456789ab".to_owned(),
            ralph: "0".to_owned(),
            task_id: "t".to_owned(),
            task_sha256: String::new(),
            branch: TaskBranch::parse("ralph/t/x").unwrap(),
            commit: "c".to_owned(),
            base_commit: "b".to_owned(),
            backend: "local".to_owned(),
            base_fingerprint: String::new(),
            model: None,
            cost: None,
            engine: Some("agent".to_owned()),
            agent: Some("claude".to_owned()),
            models: vec![ReceiptModel { model: "m".to_owned(), calls: 2, cost_micro_usd: MicroUsd(1) }],
            cost_micro_usd: Some(MicroUsd(1)),
            policy_sha256: String::new(),
            timeout_s: 1,
            separated: None,
            environment: None,
            checks: Vec::new(),
        }
    }

    #[test]
    fn signed_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/key");
        let receipt = SigningKey::load_or_create(&path).unwrap().sign(body());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::load_or_create(&path).unwrap().public(), receipt.key, "made once");
        let text = serde_json::to_string(&receipt).unwrap();
        assert_eq!(read(&text).unwrap(), receipt);
        for (from, to) in [
            ("\"cost_micro_usd\":1", "\"cost_micro_usd\":2"),
            ("\"calls\":2", "\"calls\":1"),
            ("\"commit\":\"c\"", "\"commit\":\"d\""),
            ("{", ""),
        ] {
            assert!(read(&text.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
        assert!(read(&text.replacen("\"format\":2", "\"format\":9", 1)).unwrap_err().to_string().contains("format 9"));
    }

    /// Signed by a ralph that knew neither engine nor models.
    const FORMAT_1: &str = r#"{"format":1,"body":{"run":"0123456789ab","ralph":"0.1.0","task_id":"t","task_sha256":"","branch":"ralph/t/x","commit":"c","base_commit":"b","backend":"local","base_fingerprint":"","model":"m","cost":1,"policy_sha256":"","timeout_s":1,"checks":[{"command":"make test","proves":["test"],"code":0,"timed_out":false,"duration_ms":5,"output_sha256":""}]},"key":"8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c","signature":"64ee5542706c4802df3113a698daa5c81b60f629a156ec36f9fb8dafe9292681c780d6ff409f893ff98c53e94355765f447919a826db0b55bceb7ebdf846c904"}"#;

    #[test]
    fn receipts_of_format_1_are_still_valid() {
        let receipt = read(FORMAT_1).unwrap();
        assert_eq!((receipt.body.model.as_deref(), receipt.body.cost), (Some("m"), Some(MicroUsd(1))));
        assert!(read(&FORMAT_1.replace("\"cost\":1", "\"cost\":2")).is_err());
    }

    #[test]
    fn a_path_as_run_id_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::load_or_create(&dir.path().join("key")).unwrap();
        for run in ["/tmp/elsewhere", "../../elsewhere", "", "0123456789a/"] {
            let receipt = key.sign(ReceiptBody { run: run.to_owned(), ..body() });
            let why = read(&serde_json::to_string(&receipt).unwrap()).unwrap_err().to_string();
            assert!(why.contains("is not the id of a run"), "{run}: {why}");
        }
    }

    #[test]
    fn a_readable_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        SigningKey::load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(SigningKey::load_or_create(&path).unwrap_err().to_string().contains("chmod 600"));
    }
}
