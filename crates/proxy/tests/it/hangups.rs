//! Clients that do not wait for the answer to what they asked: they pay what the provider counted, all of it and no more.

use std::time::Duration;

use ralph_proxy::notice::Charge;
use ralph_testkit::llm::{Script, Server, Turn};
use tokio::io::AsyncWriteExt;

use crate::routes::Keys;
use crate::stage::{Stage, World, rich, wait_until};
use crate::wire::{ASKS, Ask};

/// Long enough for a client to be gone before the answer begins.
const LATE: Duration = Duration::from_millis(300);

/// Has a client ask and leave once the provider has heard it.
async fn ask_and_leave(stage: &Stage, server: &Server, words: &[u8]) {
    let heard = server.hits();
    let mut stream = stage.dial().await;
    stream.write_all(words).await.unwrap();
    wait_until("the provider is asked", || server.hits() > heard).await;
    drop(stream);
}

#[tokio::test]
async fn before_the_answer_begins() {
    for (turn, charge) in [
        (Turn::text("one two three"), Charge::Reported),
        (Turn::error(429, "rate_limit_error", "slow down"), Charge::Nothing),
        // Gone on the way to us: the provider may have said more than arrived.
        (Turn::error(504, "timeout_error", "too slow"), Charge::Worst),
        (Turn::Malformed, Charge::Worst),
    ] {
        let told = format!("{turn:?}");
        let server = Server::builder().script(Script::every([turn.slow(LATE, Duration::ZERO)])).start().await.unwrap();
        let keys = Keys::new();
        let stage = Stage::open(keys.terms(&server.url(), rich()), World::new(&[]));
        for wire in ASKS {
            for stream in [false, true] {
                ask_and_leave(&stage, &server, &wire.call(keys.phantom(wire), Some(50), stream)).await;
            }
        }
        wait_until("every call is told", || stage.notes.calls().len() == 8).await;
        stage.drained().await;
        let calls = stage.notes.calls();
        assert!(calls.iter().all(|call| call.charge == charge), "{told}: {calls:?}");
        let statuses: Vec<_> = stage.notes.exchanges().iter().map(|exchanged| exchanged.status).collect();
        assert!(statuses.iter().all(Option::is_some), "{told}: {statuses:?}");
        if charge == Charge::Reported {
            let bill = server.bill();
            assert_eq!(calls.iter().map(|call| call.usage.output).sum::<u64>(), bill.output, "{told}");
            assert_eq!(calls.iter().map(|call| call.usage.prompt()).sum::<u64>(), bill.input, "{told}");
        }
    }
}

/// What was not sent cannot have been charged for.
#[tokio::test]
async fn before_anything_was_sent() {
    let keys = Keys::new();
    let stage = Stage::open(keys.terms("https://silent.test", rich()), World::new(&[]).silent("silent.test"));
    let mut stream = stage.dial().await;
    stream.write_all(&Ask::Messages.call(keys.phantom(Ask::Messages), Some(50), false)).await.unwrap();
    wait_until("the call is set aside", || stage.notes.begun() == 1).await;
    drop(stream);
    wait_until("the call is told", || stage.notes.calls().len() == 1).await;
    stage.drained().await;
    assert_eq!(stage.notes.calls()[0].charge, Charge::Nothing);
    assert_eq!(stage.ledger.settled(), ralph_proxy::ledger::Spend::default());
}
