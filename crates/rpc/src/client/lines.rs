//! A response of lines of JSON, each as it arrives.

use std::marker::PhantomData;

use bytes::BytesMut;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use snowmelt_types::{Code, ErrorReport};

/// The values of a response, one for each line. Dropping the iterator ends the request.
#[derive(Debug)]
pub struct Lines<T> {
    body: Incoming,
    buffer: BytesMut,
    values: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// Reads the lines of a response.
    pub fn new(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), buffer: BytesMut::new(), values: PhantomData }
    }

    /// Reads the next value; `None` once the response has ended, whether or not it is complete.
    ///
    /// # Errors
    /// The next line is not a value of this type.
    pub async fn next(&mut self) -> Result<Option<T>, ErrorReport> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                let value = serde_json::from_slice(&line);
                return value.map(Some).map_err(|error| {
                    ErrorReport::new(Code::PROTOCOL, format!("a line is not understood: {error}"))
                });
            }
            let Some(Ok(frame)) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
