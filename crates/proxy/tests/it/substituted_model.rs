//! Tests of answers by another model than the requested one: reported, and charged at the higher price of the two.

use ralph_core::money::MicroUsd;
use ralph_core::price::{Price, TokenUsage};
use ralph_proxy::egress_events::{ChargeBasis, ChargedCall, EgressEvent};
use ralph_proxy::meter::RouteApi;
use ralph_proxy::model_gateway::RouteModel;
use serde_json::json;

use crate::fixture::{
    DEFAULT_OUTPUT, FakeResolver, GatewayFixture, MAX_OUTPUT, MODEL, PRICE, grant, key_of, route, unlimited_ledger,
    wait_until,
};
use crate::http_client::{TestApi, send_and_read};
use crate::scripted_host::{ScriptedHost, ok};

/// Ten times the price of the requested model.
const HIGH_PRICE: Price = Price {
    input: 30_000_000,
    output: 150_000_000,
    cached_input: 3_000_000,
    cache_write: 37_500_000,
    cache_write_long: Some(60_000_000),
    ..PRICE
};

/// Makes a chat call that gets this answer, and returns what was reserved and how it was charged.
async fn charged(answer: Vec<u8>, stream: bool) -> (MicroUsd, ChargedCall) {
    let host = ScriptedHost::answering(None, answer).await;
    let key = key_of(RouteApi::OpenAi, "O");
    let model = |price| RouteModel { price: Some(price), max_output: MAX_OUTPUT, default_output: DEFAULT_OUTPUT };
    let route = route("openai", RouteApi::OpenAi, &format!("http://{}", host.address), Some(&key))
        .with_model("dear-1", model(HIGH_PRICE))
        .with_model("free-1", model(Price::FREE));
    let fixture = GatewayFixture::open(grant(vec![route], unlimited_ledger()), FakeResolver::new(&[]));
    send_and_read(fixture.proxy_address, &TestApi::Chat.call(key.phantom(), Some(50), stream)).await;
    wait_until("it is charged", || !fixture.events.calls().is_empty()).await;
    fixture.wait_until_settled().await;
    let set_aside =
        |event: &EgressEvent| if let EgressEvent::CallReserved { cost, .. } = event { Some(*cost) } else { None };
    let aside = fixture.events.all().iter().find_map(set_aside).unwrap();
    let call = fixture.events.calls().remove(0);
    assert_eq!(fixture.ledger.settled().cost, call.cost);
    (aside, call)
}

#[tokio::test]
async fn the_more_expensive_model_is_charged() {
    let usage = TokenUsage { input: 100, output: 10, ..TokenUsage::default() };
    for (answered_by, by, price) in [
        (MODEL, None, PRICE),
        ("m-1-2025-08-07", None, PRICE),
        ("maker/m-1", None, PRICE),
        ("dear-1", Some("dear-1"), HIGH_PRICE),
        ("maker/dear-1-20250101", Some("maker/dear-1-20250101"), HIGH_PRICE),
        ("free-1", Some("free-1"), PRICE),
        ("nobody\u{1b}[31m-knows", Some("nobody-knows"), PRICE),
    ] {
        let body = json!({
            "model": answered_by,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        });
        let (_, call) = charged(ok(&["Content-Type: application/json"], &body.to_string()), false).await;
        let want = (by, price.cost(&usage), ChargeBasis::Reported);
        assert_eq!((call.answered_by.as_deref(), call.cost, call.charge), want, "{answered_by}");
    }
}

/// Without usage the worst case is that of the more expensive model too.
#[tokio::test]
async fn the_worst_case_is_that_of_the_more_expensive_model() {
    for (answered_by, factor) in [(MODEL, 1), ("dear-1", 10)] {
        let chunk = json!({"model": answered_by, "choices": [{"index": 0, "delta": {"content": "a"}}]});
        let cut =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {chunk}\n\n");
        let (aside, call) = charged(cut.into_bytes(), true).await;
        let (least, most) = (aside.0 * factor - factor, aside.0 * factor);
        assert!((least..=most).contains(&call.cost.0), "{answered_by} {aside:?} {call:?}");
        assert_eq!((call.charge, call.answered_by.is_some()), (ChargeBasis::Worst, factor > 1));
    }
}
