//! Answers by another model than was asked: told, and charged at the dearer price of the two.

use ralph_core::money::Micros;
use ralph_core::price::{Price, Usage};
use ralph_proxy::meter::Wire;
use ralph_proxy::notice::{Call, Charge, Told};
use ralph_proxy::route::Model;
use serde_json::json;

use crate::host::{Host, ok};
use crate::stage::{MODEL, MOST, PRICE, Stage, USUAL, World, key_of, rich, route, terms, wait_until};
use crate::wire::{Ask, ask};

/// Ten times what is asked for.
const DEAR: Price = Price {
    input: 30_000_000,
    output: 150_000_000,
    cached_input: 3_000_000,
    cache_write: 37_500_000,
    cache_write_long: Some(60_000_000),
    ..PRICE
};

/// Asks for a chat that is answered so, and returns what was set aside and how it was charged.
async fn charged(answer: Vec<u8>, stream: bool) -> (Micros, Call) {
    let host = Host::saying(None, answer).await;
    let key = key_of(Wire::OpenAi, "O");
    let model = |price| Model { price: Some(price), most_output: MOST, usual_output: USUAL };
    let route = route("openai", Wire::OpenAi, &format!("http://{}", host.address), Some(&key))
        .with_model("dear-1", model(DEAR))
        .with_model("free-1", model(Price::FREE));
    let stage = Stage::open(terms(vec![route], rich()), World::new(&[]));
    ask(stage.door, &Ask::Chat.call(key.phantom(), Some(50), stream)).await;
    wait_until("it is charged", || !stage.notes.calls().is_empty()).await;
    stage.drained().await;
    let set_aside = |told: &Told| if let Told::Calling { cost, .. } = told { Some(*cost) } else { None };
    let aside = stage.notes.all().iter().find_map(set_aside).unwrap();
    let call = stage.notes.calls().remove(0);
    assert_eq!(stage.ledger.settled().cost, call.cost);
    (aside, call)
}

#[tokio::test]
async fn the_dearer_of_two_is_charged() {
    let usage = Usage { input: 100, output: 10, ..Usage::default() };
    for (said, by, price) in [
        (MODEL, None, PRICE),
        ("m-1-2025-08-07", None, PRICE),
        ("maker/m-1", None, PRICE),
        ("dear-1", Some("dear-1"), DEAR),
        ("maker/dear-1-20250101", Some("maker/dear-1-20250101"), DEAR),
        ("free-1", Some("free-1"), PRICE),
        ("nobody\u{1b}[31m-knows", Some("nobody-knows"), PRICE),
    ] {
        let body = json!({
            "model": said,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        });
        let (_, call) = charged(ok(&["Content-Type: application/json"], &body.to_string()), false).await;
        let want = (by, price.cost(&usage), Charge::Reported);
        assert_eq!((call.answered_by.as_deref(), call.cost, call.charge), want, "{said}");
    }
}

/// Without a count the worst case is that of the dearer one too.
#[tokio::test]
async fn and_so_is_its_worst_case() {
    for (said, factor) in [(MODEL, 1), ("dear-1", 10)] {
        let chunk = json!({"model": said, "choices": [{"index": 0, "delta": {"content": "a"}}]});
        let cut =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {chunk}\n\n");
        let (aside, call) = charged(cut.into_bytes(), true).await;
        let (least, most) = (aside.0 * factor - factor, aside.0 * factor);
        assert!((least..=most).contains(&call.cost.0), "{said} {aside:?} {call:?}");
        assert_eq!((call.charge, call.answered_by.is_some()), (Charge::Worst, factor > 1));
    }
}
