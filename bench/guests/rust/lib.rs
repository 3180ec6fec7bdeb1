//! The JSON echo in Rust, with the kit: a create request is parsed and written
//! back as the reply.

use sbx::{Call, Error, Provider, Value};

struct Echo;

fn echo(request: &Value) -> Result<String, Error> {
    let mut out = String::new();
    sbx::json::put_value(&mut out, request);
    Ok(out)
}

impl Provider for Echo {
    fn create(&self, _: &Call, request: &Value) -> Result<String, Error> {
        echo(request)
    }
    fn status(&self, _: &Call, request: &Value) -> Result<String, Error> {
        echo(request)
    }
    fn destroy(&self, _: &Call, request: &Value) -> Result<String, Error> {
        echo(request)
    }
    fn list(&self, _: &Call, request: &Value) -> Result<String, Error> {
        echo(request)
    }
}

sbx::serve!(Echo);
