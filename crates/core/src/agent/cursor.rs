//! Cursor's agent. Written from its documentation; the program was not run.
//!
//! It talks to its maker only and cannot be pointed elsewhere. Its key is exchanged at the start for a token that it
//! keeps, so a stand-in protects the key and not the token, and nobody but the maker counts what it costs.

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::messages::Messages;
use super::said::Reader;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Cursor;

impl Agent for Cursor {
    fn name(&self) -> &'static str {
        "cursor"
    }

    fn program(&self) -> &'static str {
        "cursor-agent"
    }

    fn package(&self) -> Option<Package> {
        None
    }

    fn by_hand(&self) -> &'static str {
        "install it from cursor.com/cli; the npm package of that name is somebody else's"
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::OneShotSecret
    }

    fn wires(&self) -> &'static [Wire] {
        &[]
    }

    fn tested(&self) -> Tested {
        Tested::Documentation
    }

    fn start(&self, session: &Session<'_>) -> Start {
        let word = session.word();
        Start::new(&[
            session.program,
            "--print",
            "--force",
            "--trust",
            "--output-format",
            "stream-json",
            "--model",
            session.model,
            &word,
        ])
        .env("CURSOR_API_KEY", session.key)
        .env("CURSOR_CONFIG_DIR", session.folder)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Messages::default())
    }
}
