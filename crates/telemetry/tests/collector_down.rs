//! A collector that is down is logged once, and spans are counted.

#[allow(dead_code)]
mod collector;

use std::io::Write;
use std::sync::{Arc, Mutex};

use snowmelt_rpc::RequestId;
use snowmelt_rpc::trace::{Export, SPANS};
use snowmelt_telemetry::Settings;
use tokio::net::TcpListener;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_collector_that_is_down_is_logged_once() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = unused.local_addr().unwrap();
    drop(unused);
    let log = Log::default();
    let settings = Settings::new(format!("http://{at}/v1/traces").parse().unwrap());
    let (layer, prepared) = snowmelt_telemetry::prepare(settings);
    let written = tracing_subscriber::fmt::layer().with_writer(log.clone());
    let subscriber = tracing_subscriber::registry().with(written).with(layer);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let running = prepared.start().unwrap();

    let export = Export::installed().unwrap();
    for batches in 1..=2 {
        let one = async { drop(tracing::debug_span!(target: SPANS, "one")) };
        RequestId::new().scope(one).await;
        while export.counts()[1] < batches {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    running.end();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(log.matches("spans cannot be exported").count(), 1, "{log}");
    assert_eq!(export.counts(), [0, 2]);
}
