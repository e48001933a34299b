//! Tests of clients that hang up before the answer: they are charged what the provider counted, all of it and no
//! more.

use std::time::Duration;

use ralph_proxy::egress_events::ChargeBasis;
use ralph_testkit::model_server::{FakeModelScript, FakeModelServer, ScriptedTurn};
use tokio::io::AsyncWriteExt;

use crate::fixture::{FakeResolver, GatewayFixture, unlimited_ledger, wait_until};
use crate::http_client::{TEST_APIS, TestApi};
use crate::model_routes::RouteKeys;

/// Long enough for a client to hang up before the answer begins.
const ANSWER_DELAY: Duration = Duration::from_millis(300);

/// Sends a request and hangs up once the provider has received it.
async fn ask_and_leave(fixture: &GatewayFixture, server: &FakeModelServer, request: &[u8]) {
    let hits_before = server.hits();
    let mut stream = fixture.dial().await;
    stream.write_all(request).await.unwrap();
    wait_until("the provider received the call", || server.hits() > hits_before).await;
    drop(stream);
}

#[tokio::test]
async fn a_hangup_before_the_answer_is_charged_by_usage() {
    for (turn, charge) in [
        (ScriptedTurn::text("one two three"), ChargeBasis::Reported),
        (ScriptedTurn::error(429, "rate_limit_error", "slow down"), ChargeBasis::Nothing),
        // Lost on the way to us: the provider may have generated more than arrived.
        (ScriptedTurn::error(504, "timeout_error", "too slow"), ChargeBasis::Worst),
        (ScriptedTurn::Malformed, ChargeBasis::Worst),
    ] {
        let case = format!("{turn:?}");
        let server = FakeModelServer::builder()
            .script(FakeModelScript::for_all_calls([turn.slow(ANSWER_DELAY, Duration::ZERO)]))
            .start()
            .await
            .unwrap();
        let keys = RouteKeys::new();
        let fixture = GatewayFixture::open(keys.grant(&server.url(), unlimited_ledger()), FakeResolver::new(&[]));
        for wire in TEST_APIS {
            for stream in [false, true] {
                ask_and_leave(&fixture, &server, &wire.call(keys.phantom(wire), Some(50), stream)).await;
            }
        }
        wait_until("every call is reported", || fixture.events.calls().len() == 8).await;
        fixture.wait_until_settled().await;
        let calls = fixture.events.calls();
        assert!(calls.iter().all(|call| call.charge == charge), "{case}: {calls:?}");
        let statuses: Vec<_> = fixture.events.exchanges().iter().map(|exchanged| exchanged.status).collect();
        assert!(statuses.iter().all(Option::is_some), "{case}: {statuses:?}");
        if charge == ChargeBasis::Reported {
            let bill = server.bill();
            assert_eq!(calls.iter().map(|call| call.usage.output).sum::<u64>(), bill.output, "{case}");
            assert_eq!(calls.iter().map(|call| call.usage.prompt()).sum::<u64>(), bill.input, "{case}");
        }
    }
}

/// A call that was not sent cannot have been charged.
#[tokio::test]
async fn a_hangup_before_sending_costs_nothing() {
    let keys = RouteKeys::new();
    let fixture = GatewayFixture::open(
        keys.grant("https://silent.test", unlimited_ledger()),
        FakeResolver::new(&[]).silent("silent.test"),
    );
    let mut stream = fixture.dial().await;
    stream.write_all(&TestApi::Messages.call(keys.phantom(TestApi::Messages), Some(50), false)).await.unwrap();
    wait_until("the call is reserved", || fixture.events.started_calls() == 1).await;
    drop(stream);
    wait_until("the call is reported", || fixture.events.calls().len() == 1).await;
    fixture.wait_until_settled().await;
    assert_eq!(fixture.events.calls()[0].charge, ChargeBasis::Nothing);
    assert_eq!(fixture.ledger.settled(), ralph_proxy::ledger::LedgerAmount::default());
}
