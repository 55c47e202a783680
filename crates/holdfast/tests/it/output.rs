use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use holdfast_testkit::{Client, Engine};

use crate::process::{Installation, Service};

/// Every write to it fails, as on a full disk.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe whose reader has closed it.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

async fn dropped_lines(client: &Client) -> u64 {
    let text = client.get("/metrics").await.text;
    let line = text.lines().find_map(|line| line.strip_prefix("holdfast_log_lines_dropped_total "));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn the_service_goes_on_when_its_output_cannot_be_written() {
    for (stdout, stderr) in [(full(), full()), (closed(), closed())] {
        let installation = Installation::new(Engine::Sqlite).await;
        let service = Service::start_with(&installation, "debug", stdout, stderr).await;
        let client = service.client();
        while client.get("/healthz").await.status == 503 {}
        for _ in 0..20 {
            assert_eq!(client.get("/healthz").await.status, 200);
        }
        assert!(dropped_lines(&client).await > 0);
        service.signal("TERM");
        assert_eq!(service.wait(), Some(0), "stopped as asked");
    }
}

/// Without a separate queue, the first line that finds the pipe full stops the thread that logs it.
#[tokio::test]
async fn a_reader_of_the_log_that_stalls_does_not_stop_the_service() {
    let installation = Installation::new(Engine::Sqlite).await;
    let (mut reader, writer) = std::io::pipe().unwrap();
    let service = Service::start_with(&installation, "trace", Stdio::null(), writer.into()).await;
    let client = service.client();
    while dropped_lines(&client).await == 0 {}
    let (seen, mut log) = (std::sync::mpsc::channel(), Vec::new());
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            log.extend_from_slice(&buffer[..count]);
            if String::from_utf8_lossy(&log).contains("log lines could not be written and were dropped") {
                return seen.0.send(()).unwrap();
            }
        }
    });
    while seen.1.try_recv().is_err() {
        assert_eq!(client.get("/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn a_command_tells_when_its_output_could_not_be_written() {
    let installation = Installation::new(Engine::Sqlite).await;
    for arguments in [&["settings"][..], &["--help"], &["openapi"]] {
        let ran =
            |stdout: Stdio| installation.command(arguments).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
        let lost = ran(full());
        let text = String::from_utf8_lossy(&lost.stderr).into_owned();
        assert_eq!((lost.status.code(), text.contains("standard output")), (Some(7), true), "{text}");
        let unread = ran(closed());
        assert_eq!((unread.status.code(), unread.stderr), (Some(0), Vec::new()), "the reader wanted no more");
    }
}
