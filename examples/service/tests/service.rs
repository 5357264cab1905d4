//! The program from a client's view: each test starts it over a directory of its own, and sends it requests.

#![expect(clippy::unwrap_used, reason = "a test")]

mod client;

use std::collections::BTreeMap;
use std::thread;

use client::{Server, encoded};
use serde_json::{Value, json};

/// Values of any bytes are returned byte for byte, under any key that is text.
#[test]
fn items_are_written_read_and_deleted() {
    let (server, _directory) = Server::over_nothing();
    let binary: Vec<u8> = (0..=255).collect();
    for key in ["ann", "user/ann", "a b%c?d&e=f", "żółw", "..", "/"] {
        assert_eq!(server.get(key), None);
        for value in [&b"1"[..], b"", &binary] {
            server.put(key, value);
            assert_eq!(server.get(key).as_deref(), Some(value));
        }
        assert_eq!(server.delete(&format!("/items/{}", encoded(key))).status, 204);
        assert_eq!(server.delete(&format!("/items/{}", encoded(key))).status, 204);
        assert_eq!(server.get(key), None);
    }
}

/// A write with `sync=1` is answered after a sync to the device.
#[test]
fn writes_are_durable_on_demand() {
    let (server, _directory) = Server::over_nothing();
    let syncs = || server.read("/stats").json()["io"]["syncs"].as_u64().unwrap();
    let batch = br#"[{"op": "put", "key": "ann", "value": "1"}]"#;
    for (method, path, body) in
        [("PUT", "/items/ann", &b"1"[..]), ("DELETE", "/items/ann", b""), ("POST", "/batch", batch)]
    {
        server.send(method, &format!("{path}?sync=0"), body).expect(204);
        let before = syncs();
        server.send(method, &format!("{path}?sync=1"), body).expect(204);
        assert!(syncs() > before, "{method} {path}");
    }
}

/// Statistics have the names of the store's own.
#[test]
fn statistics_are_json() {
    let (server, _directory) = Server::over_nothing();
    server.put("ann", b"1");
    let stats = server.read("/stats").json();
    let keyspace = &stats["keyspaces"][0];
    assert_eq!((&keyspace["name"], &keyspace["items"]), (&json!("items"), &json!(1)));
    assert_eq!(stats["background"]["error"], Value::Null);
}

/// Every refusal has a status, a word for programs and a sentence for people, and writes nothing.
#[test]
fn refusals_have_a_status_a_kind_and_a_sentence() {
    let (server, _directory) = Server::over_nothing();
    let long_key = json!([{ "op": "put", "key": "k".repeat(70_000), "value": "" }]).to_string();
    let bad = "bad_request";
    for (method, path, body, status, kind, words) in [
        ("GET", "/items/ann", &b""[..], 404, "no_item", "no item with the key \"ann\""),
        ("GET", "/items/%ff", b"", 400, bad, "UTF-8"),
        ("PUT", "/items/%ff", b"", 400, bad, "UTF-8"),
        ("PUT", "/items/ann?sync=2", b"", 400, bad, "unknown variant `2`"),
        ("PUT", "/items/ann?snyc=1", b"", 400, bad, "unknown field `snyc`"),
        ("PUT", "/items/ann", &vec![0; (1 << 20) + 1], 413, "too_large", "over the limit of 1048576"),
        ("PUT", "/items/ann", &vec![0; (2 << 20) + 1], 413, bad, "length limit exceeded"),
        (
            "POST",
            "/batch",
            long_key.as_bytes(),
            413,
            "too_large",
            "item 1 of the batch, which is not written: a key of 70000",
        ),
        ("POST", "/batch", b"[", 400, bad, "EOF"),
        ("POST", "/batch", br#"[{"op": "clear", "key": "a"}]"#, 422, bad, "unknown variant `clear`"),
        ("POST", "/batch", br#"[{"op": "put", "key": "a"}]"#, 400, bad, "a put has either a value or base64"),
        (
            "POST",
            "/batch",
            br#"[{"op": "put", "key": "a", "base64": "*"}]"#,
            400,
            bad,
            "its value is not base64",
        ),
        ("GET", "/items?limit=0", b"", 400, bad, "limit is 0, and may be 1 to 1000"),
        ("GET", "/items?limit=1001", b"", 400, bad, "limit is 1001"),
        ("GET", "/items?limit=many", b"", 400, bad, "invalid digit"),
        ("GET", "/items?form=a", b"", 400, bad, "unknown field `form`"),
        ("GET", "/export?form=a", b"", 400, bad, "unknown field `form`"),
        ("GET", "/item", b"", 404, "no_endpoint", "no such endpoint"),
        ("PUT", "/batch", b"", 405, "method", "does not take this method"),
    ] {
        let answer = server.send(method, path, body);
        let told = answer.json();
        let message = told["message"].as_str().unwrap();
        assert_eq!((answer.status, told["error"].as_str()), (status, Some(kind)), "{path}: {message}");
        assert!(message.contains(words), "{path}: {message}");
    }
    assert_eq!(server.page("").0, []);
}

/// Pages of every size cover each range once and in order, like a sorted map.
#[test]
fn pages_cover_a_range_once() {
    let (server, _directory) = Server::over_nothing();
    let keys: Vec<String> = ["", "user/", "user/é", "zone/"]
        .iter()
        .flat_map(|start| (10..50).map(move |n| format!("{start}{n}")))
        .collect();
    let model: BTreeMap<String, String> = keys.iter().map(|key| (key.clone(), format!("of {key}"))).collect();
    let puts: Vec<Value> =
        model.iter().map(|(key, value)| json!({ "op": "put", "key": key, "value": value })).collect();
    server.send("POST", "/batch", json!(puts).to_string().as_bytes()).expect(204);

    for (from, to, prefix) in [
        (None, None, None),
        (Some("20"), Some("30"), None),
        (Some("user/20"), None, None),
        (None, Some("user/2"), None),
        (None, None, Some("user/")),
        (None, None, Some("user/é")),
        (Some("user/30"), Some("user/40"), Some("user/")),
        (Some("a"), Some("z"), Some("user/")),
        (Some("zone/"), None, Some("user/")),
        (Some("zone/"), Some("user/"), None),
        (None, None, Some("nobody")),
    ] {
        let fields = [("from", from), ("to", to), ("prefix", prefix)];
        let given: Vec<String> = fields
            .iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", encoded((*value)?))))
            .collect();
        let query = given.join("&");
        let expected: Vec<(String, String)> = model
            .iter()
            .filter(|(key, _)| from.is_none_or(|from| key.as_str() >= from))
            .filter(|(key, _)| to.is_none_or(|to| key.as_str() < to))
            .filter(|(key, _)| prefix.is_none_or(|prefix| key.starts_with(prefix)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        for limit in [1, 7, 40, 1_000] {
            let query = format!("limit={limit}&{query}");
            let (items, pages) = server.all_pages(&query);
            assert_eq!(items, expected, "{query}");
            assert_eq!(pages, expected.len().div_ceil(limit).max(1), "{query}");
        }
        assert_eq!(server.exported(&query), expected, "{query}");
        assert_eq!(server.exported(&format!("limit=3&{query}")), expected[..expected.len().min(3)]);
    }
}

/// A page of large values ends early, and the next page continues after it.
#[test]
fn pages_are_bounded_by_bytes() {
    let (server, _directory) = Server::over_nothing();
    for key in ["a", "b", "c", "d", "e"] {
        server.put(key, key.repeat(600 << 10).as_bytes());
    }
    let (items, next) = server.page("");
    assert_eq!((items.len(), next.as_deref()), (2, Some("b")));
    let (items, pages) = server.all_pages("");
    let lengths: Vec<(&str, usize)> = items.iter().map(|(key, value)| (key.as_str(), value.len())).collect();
    assert_eq!(lengths, ["a", "b", "c", "d", "e"].map(|key| (key, 600 << 10)));
    assert_eq!(pages, 3);
    assert_eq!(server.exported(""), items);
}

/// JSON encodes values that are not text as base64, in both directions.
#[test]
fn values_may_be_any_bytes() {
    let (server, _directory) = Server::over_nothing();
    server.put("bytes", b"\xff\x00");
    server.put("text", "é".as_bytes());
    let page = server.read("/items").json();
    let expected = json!([{ "key": "bytes", "base64": "/wA=" }, { "key": "text", "value": "é" }]);
    assert_eq!(page["items"], expected);
    server.send("POST", "/batch", br#"[{"op": "put", "key": "more", "base64": "/wD+"}]"#).expect(204);
    assert_eq!(server.get("more").as_deref(), Some(&b"\xff\x00\xfe"[..]));
}

/// One bad item refuses the whole batch; later writes of a key win over earlier ones.
#[test]
fn batches_are_written_whole() {
    let (server, _directory) = Server::over_nothing();
    server.put("old", b"1");
    let batch = |key: &str| {
        json!([
            { "op": "delete", "key": "old" },
            { "op": "put", "key": "new", "value": "1" },
            { "op": "put", "key": key, "value": "" },
            { "op": "put", "key": "new", "value": "2" },
        ])
        .to_string()
    };
    let refused = server.send("POST", "/batch", batch(&"k".repeat(70_000)).as_bytes()).expect(413);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("item 3 of the batch, which is not written: a key of 70000 bytes"),
        "{message}"
    );
    assert_eq!(server.get("old").as_deref(), Some(&b"1"[..]));
    assert_eq!(server.get("new"), None);

    server.send("POST", "/batch", batch("third").as_bytes()).expect(204);
    assert_eq!(server.get("old"), None);
    assert_eq!(server.get("new").as_deref(), Some(&b"2"[..]));
    server.send("POST", "/batch", b"[]").expect(204);
}

/// Acknowledged writes survive both a regular end and a kill of the program.
#[test]
fn items_survive_a_restart() {
    let (server, directory) = Server::over_nothing();
    server.put("ann", b"1");
    server.stop();
    let server = Server::over(directory.path());
    assert_eq!(server.get("ann").as_deref(), Some(&b"1"[..]));
    server.put("bob", b"2");
    server.kill();
    let server = Server::over(directory.path());
    assert_eq!(server.get("ann").as_deref(), Some(&b"1"[..]));
    assert_eq!(server.get("bob").as_deref(), Some(&b"2"[..]));
}

/// A request in progress is answered whole when the program is told to end.
#[test]
fn requests_end_before_the_store_closes() {
    let (server, directory) = Server::over_nothing();
    let value = "v".repeat(1 << 20);
    let keys: Vec<String> = (10..26).map(|number| number.to_string()).collect();
    for key in &keys {
        server.put(key, value.as_bytes());
    }
    let export = server.begin("/export");
    let stopping = thread::spawn(|| server.stop());
    let items = export();
    assert!(items.iter().map(|(key, _)| key).eq(&keys));
    assert!(items.iter().all(|(_, found)| *found == value));
    stopping.join().unwrap();
    assert_eq!(Server::over(directory.path()).page("limit=1").0, items[..1]);
}

/// A second program over the same directory exits with the reason, and the first one continues.
#[test]
fn one_program_serves_a_directory() {
    let (server, directory) = Server::over_nothing();
    let message = Server::refusal(directory.path());
    assert!(message.contains("is open elsewhere"), "{message}");
    server.put("ann", b"1");
    assert_eq!(server.get("ann").as_deref(), Some(&b"1"[..]));
}

/// 64 clients write at once, some of them durably: no write is lost, and readers see batches whole.
#[test]
fn many_clients_write_at_once() {
    const CLIENTS: usize = 64;
    const WRITES: usize = 20;
    let (server, directory) = Server::over_nothing();
    let write = |client: usize| {
        for number in 0..WRITES {
            let query = if number % 8 == client % 8 { "?sync=1" } else { "" };
            let (key, value) = (format!("{client:02}/{number:02}"), format!("{client} {number}"));
            server.send("PUT", &format!("/items/{key}{query}"), value.as_bytes()).expect(204);
            assert_eq!(server.get(&key).as_deref(), Some(value.as_bytes()));
            let twins = ["twin/a", "twin/b"].map(|key| json!({ "op": "put", "key": key, "value": value }));
            server.send("POST", &format!("/batch{query}"), json!(twins).to_string().as_bytes()).expect(204);
            let (twins, _) = server.page("prefix=twin/");
            assert_eq!(twins[0].1, twins[1].1, "half a batch");
        }
    };
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || write(client));
        }
    });
    server.stop();

    let server = Server::over(directory.path());
    let expected: Vec<(String, String)> = (0..CLIENTS)
        .flat_map(|client| {
            (0..WRITES).map(move |number| (format!("{client:02}/{number:02}"), format!("{client} {number}")))
        })
        .collect();
    assert_eq!(server.exported("to=a"), expected);
    assert_eq!(server.exported("prefix=twin/").len(), 2);
}
