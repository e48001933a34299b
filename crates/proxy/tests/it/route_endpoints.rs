//! Tests of the endpoints that model routes lead to: certificates, plain HTTP and local addresses.

use ralph_proxy::ledger::LedgerAmount;
use ralph_proxy::meter::{GatewayRefusal, RouteApi};
use ralph_testkit::model_server::TestCa;

use crate::fixture::{FakeResolver, GatewayFixture, grant, route, unlimited_ledger};
use crate::http_client::{TEST_APIS, TestApi, send_and_read};
use crate::model_routes::RouteKeys;
use crate::scripted_host::{ScriptedHost, expired, ok};

#[tokio::test]
async fn a_provider_with_an_untrusted_certificate_is_not_called() {
    let known = TestCa::new().unwrap();
    let (old, old_root) = expired("api.test");
    let own = known.server_config(&["other.test"], &[b"http/1.1"]).unwrap();
    let untrusted = TestCa::new().unwrap().server_config(&["api.test"], &[b"http/1.1"]).unwrap();
    for (case, config) in [("another name", own), ("unknown issuer", untrusted), ("too old", old)] {
        let host = ScriptedHost::answering(Some(config), ok(&[], "{}")).await;
        let keys = RouteKeys::new();
        let network = FakeResolver::new(&[&known.pem(), &old_root]).with("api.test", host.address);
        let fixture = GatewayFixture::open(keys.grant("https://api.test", unlimited_ledger()), network);
        for wire in TEST_APIS {
            let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), None, false)).await;
            // Not an outage, and nothing that a retry could fix.
            assert_eq!(got.status, 403, "{case} {}", got.text());
            assert_eq!(got.header("x-should-retry"), Some("false"), "{case}");
            let expected = "ralph: `api.test` cannot be called: its certificate is not trusted (";
            assert!(got.json()["error"]["message"].as_str().unwrap().starts_with(expected), "{case}");
        }
        assert_eq!(host.requests(), [], "{case}");
        assert_eq!((fixture.ledger.settled(), fixture.ledger.reserved()), Default::default(), "{case}");
        assert!(
            fixture.resolver.dials().iter().all(|dial| dial.port() == 443),
            "{case}: no second attempt without TLS"
        );
    }
}

#[tokio::test]
async fn a_key_is_not_sent_without_tls() {
    let host = ScriptedHost::answering(None, ok(&[], "{}")).await;
    for (address, url) in [
        ([93, 184, 215, 14], "http://api.test"),
        ([10, 0, 0, 5], "http://api.test:8080"),
        ([169, 254, 169, 254], "https://api.test"),
    ] {
        let keys = RouteKeys::new();
        let network = FakeResolver::new(&[]).with_at("api.test", address.into(), host.address);
        let fixture = GatewayFixture::open(keys.grant(url, unlimited_ledger()), network);
        let got =
            send_and_read(fixture.proxy_address, &TestApi::Messages.call(keys.phantom(TestApi::Messages), None, false))
                .await;
        assert_eq!(got.status, 403, "{url} {}", got.text());
        let exchanges = fixture.events.exchanges();
        assert!(
            matches!(exchanges.last().unwrap().refused.as_deref(), Some(GatewayRefusal::Barred(_))),
            "{exchanges:?}"
        );
        assert_eq!((host.requests().len(), fixture.resolver.dials().len()), (0, 0), "{url}");
        assert_eq!(fixture.ledger.settled(), LedgerAmount::default());
    }
}

/// A self-hosted model in the local network, which needs no key.
#[tokio::test]
async fn a_local_endpoint_without_a_key_is_called_without_tls() {
    for (address, want) in [([10, 0, 0, 5], 200), ([93, 184, 215, 14], 403), ([169, 254, 169, 254], 403)] {
        let host = ScriptedHost::answering(None, ok(&["Content-Type: application/json"], "{}")).await;
        let network = FakeResolver::new(&[]).with_at("box", address.into(), host.address);
        let own = route("openai", RouteApi::OpenAi, "http://box:11434/v1", None);
        let fixture = GatewayFixture::open(grant(vec![own], unlimited_ledger()), network);
        let got = send_and_read(fixture.proxy_address, &TestApi::Chat.call("none", None, false)).await;
        assert_eq!(got.status, want, "{address:?} {}", got.text());
        assert_eq!(host.requests().len(), usize::from(want == 200), "{address:?}");
    }
}
