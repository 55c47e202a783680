use bytes::Bytes;
use holdfast_engine::destination::{self, BlobStore, PartBody};

/// The smallest part that S3 accepts.
const PART: usize = 5 * 1024 * 1024;

fn part(number: u8) -> PartBody {
    vec![Bytes::from(vec![number; PART / 2]), Bytes::from(vec![number + 100; PART / 2])].into()
}

/// Checks everything that the engine relies on.
pub async fn conforms(store: &dyn BlobStore) {
    objects_come_back(store).await;
    parts_join_in_order(store).await;
    nothing_partial_is_seen(store).await;
    odd_keys_are_keys(store).await;
    destination::check(store, "probe-object").await.unwrap();
    assert_eq!(store.list("", 100).await.unwrap(), [""; 0], "the suite leaves nothing");
}

async fn objects_come_back(store: &dyn BlobStore) {
    let body = Bytes::from_static(b"0123456789");
    assert_eq!(store.stat("a/b.bin").await.unwrap(), None);
    store.put("a/b.bin", body.clone()).await.unwrap();
    assert_eq!(store.stat("a/b.bin").await.unwrap().unwrap().size, 10);
    assert_eq!(store.read("a/b.bin", 0..10).await.unwrap(), body);
    assert_eq!(store.read("a/b.bin", 3..5).await.unwrap(), "34");
    assert!(store.read("a/b.bin", 5..11).await.is_err(), "a short answer is an error");
    assert!(store.read("a/nothing", 0..1).await.is_err());
    store.put("a/c.bin", Bytes::new()).await.unwrap();
    assert_eq!(store.stat("a/c.bin").await.unwrap().unwrap().size, 0);
    let mut listed = store.list("a/", 100).await.unwrap();
    listed.sort();
    assert_eq!(listed, ["a/b.bin", "a/c.bin"]);
    assert_eq!(store.list("a/b", 100).await.unwrap(), ["a/b.bin"]);
    assert_eq!(store.list("a/", 1).await.unwrap().len(), 1);
    for key in ["a/b.bin", "a/c.bin", "a/nothing"] {
        store.remove(key).await.unwrap();
    }
    assert_eq!(store.stat("a/b.bin").await.unwrap(), None);
}

async fn parts_join_in_order(store: &dyn BlobStore) {
    let key = "large/object.bin";
    let upload = store.begin(key).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..3 {
        ids.push(store.put_part(key, &upload, number, part(number as u8)).await.unwrap());
    }
    store.complete(key, &upload, ids).await.unwrap();
    assert_eq!(store.stat(key).await.unwrap().unwrap().size, 3 * PART as u64);
    let at = PART as u64;
    assert_eq!(store.read(key, at - 1..at + 1).await.unwrap().as_ref(), [100, 1]);
    assert_eq!(store.read(key, 2 * at - 1..2 * at + 1).await.unwrap().as_ref(), [101, 2]);
    store.remove(key).await.unwrap();
}

async fn nothing_partial_is_seen(store: &dyn BlobStore) {
    let key = "large/partial.bin";
    let upload = store.begin(key).await.unwrap();
    store.put_part(key, &upload, 0, part(1)).await.unwrap();
    assert_eq!(store.stat(key).await.unwrap(), None);
    assert_eq!(store.list("large/", 10).await.unwrap(), [""; 0]);
    store.abort(key, Some(&upload)).await.unwrap();
    store.abort(key, Some(&upload)).await.unwrap();
    assert_eq!(store.stat(key).await.unwrap(), None);
}

async fn odd_keys_are_keys(store: &dyn BlobStore) {
    let keys = ["a b", "100%25", "ünï", "$(id) ' \"", "-rf", "a+b&c=d?e#f", "[x]*"];
    for (number, key) in keys.iter().enumerate() {
        store
            .put(&format!("odd/{key}"), Bytes::from(number.to_string()))
            .await
            .unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    for (number, key) in keys.iter().enumerate() {
        let key = format!("odd/{key}");
        assert_eq!(store.read(&key, 0..1).await.unwrap(), number.to_string(), "{key}");
        assert_eq!(store.list(&key, 10).await.unwrap(), std::slice::from_ref(&key));
        store.remove(&key).await.unwrap();
    }
    for key in ["../out", "a/../../out", "/etc/passwd", "", "a//b", "."] {
        assert!(store.put(key, Bytes::from_static(b"x")).await.is_err(), "{key:?}");
    }
}
