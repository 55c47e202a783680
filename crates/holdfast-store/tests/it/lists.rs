use holdfast_core::page::{PageRequest, Sort};
use holdfast_store::{Listing, destinations, tags};
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;
use sqlx::{Connection as _, PgConnection, SqliteConnection};

/// Sets the status of all destinations to any text.
async fn set_status(app: &TestApp, status: &str) {
    const UPDATE: &str = "UPDATE backup_destinations SET status = $1";
    if app.app.store.is_sqlite() {
        let mut connection = SqliteConnection::connect(&app.options.url).await.unwrap();
        sqlx::query(UPDATE).bind(status).execute(&mut connection).await.unwrap();
    } else {
        let mut connection = PgConnection::connect(&app.options.url).await.unwrap();
        sqlx::query(UPDATE).bind(status).execute(&mut connection).await.unwrap();
    }
}

on_both_engines! {
    async fn every_page_has_the_total_of_the_list(app: TestApp) {
        let (user, other) = (app.user("ada").await, app.user("eve").await);
        for number in 0..7 {
            let label = if number < 5 { format!("red {number}") } else { format!("blue {number}") };
            user.client.post("/api/tags", json!({"label": label})).await.data(201);
        }
        other.client.post("/api/tags", json!({"label": "red"})).await.data(201);
        let mut tx = app.app.store.read().await.unwrap();
        for (search, page, newest_first, items, total) in [
            (None, 1, false, vec!["red 0", "red 1", "red 2"], 7),
            (None, 3, false, vec!["blue 6"], 7),
            (None, 4, false, vec![], 7),
            (None, 1, true, vec!["blue 6", "blue 5", "red 4"], 7),
            (Some("RED"), 2, false, vec!["red 3", "red 4"], 5),
            (Some("RED"), 9, true, vec![], 5),
            (Some("green"), 1, false, vec![], 0),
            (Some("green"), 2, false, vec![], 0),
        ] {
            let page = PageRequest { page, per_page: 3 };
            let sort = if newest_first { Sort::IdDescending } else { Sort::Id };
            let listing = Listing { search: search.map(str::to_owned), sort, ..Listing::new(user.id, page) };
            let found = tags::list(&mut tx, &listing).await.unwrap();
            let labels: Vec<&str> = found.items.iter().map(|row| row.label.as_str()).collect();
            assert_eq!((labels, found.total), (items, total), "{listing:?}");
        }
    }

    async fn a_value_that_cannot_be_read_is_named(app: TestApp) {
        let user = app.user("ada").await;
        let id = user.destination().await;
        set_status(&app, "from the future").await;
        let mut tx = app.app.store.read().await.unwrap();
        let error = destinations::find(&mut tx, id.into()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("status of DestinationRow {id}")), "{error}");
        assert!(!error.contains("future"), "what is stored may be secret: {error}");
    }
}
