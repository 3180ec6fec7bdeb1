//! One operation in progress.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::generated::*;
use crate::json::{self, Object, Value};

/// What an operation fails with: one of the host's codes, and a message.
#[derive(Clone, Debug)]
pub struct Error {
    pub code: &'static str,
    pub message: String,
    /// The errno behind it, 0 when there is none.
    pub errno: i32,
}

impl Error {
    pub fn new(code: &'static str, message: &str) -> Self {
        Error { code, message: String::from(message), errno: 0 }
    }

    pub fn unsupported(what: &str) -> Self {
        Error { code: "Unsupported", message: format!("this plugin does not implement {}", what), errno: 0 }
    }

    /// The error for a negative result of an import.
    pub fn from_errno(errno: i32) -> Self {
        let code = match errno {
            E_CANCELED => "Canceled",
            E_DEADLINE => "DeadlineExceeded",
            E_NETWORK | E_AGAIN => "Unavailable",
            E_TRUNCATED => "Lost",
            E_DENIED | E_BADF => "PermissionDenied",
            E_TOO_LARGE | E_LIMIT => "ResourceExhausted",
            E_UNSUPPORTED => "Unsupported",
            _ => "Internal",
        };
        Error { code, message: format!("host call failed with {}", errno), errno }
    }
}

/// Maps an HTTP status: Ok for 2xx, else the matching code.
pub fn status_error(what: &str, status: i32) -> Result<(), Error> {
    let code = match status {
        200..=299 => return Ok(()),
        400 | 422 => "InvalidArgument",
        401 | 403 => "PermissionDenied",
        404 | 410 => "NotFound",
        408 | 504 => "DeadlineExceeded",
        409 => "Conflict",
        402 | 429 => "ResourceExhausted",
        500..=599 => "Unavailable",
        _ => "Internal",
    };
    Err(Error { code, message: format!("{}: the vendor answered {}", what, status), errno: 0 })
}

/// One operation. It is valid until the method it was given to returns.
pub struct Call {
    pub op: i32,
}

/// An approved route and what the plugin may choose of it.
#[derive(Default)]
pub struct Request<'a> {
    pub route: &'a str,
    pub params: Vec<(&'a str, String)>,
    pub query: Vec<(&'a str, String)>,
    /// Free body fields: an object of JSON pointer to value, as built by `Object`.
    pub free: Option<String>,
}

impl<'a> Request<'a> {
    pub fn route(route: &'a str) -> Self {
        Request { route, ..Default::default() }
    }
}

/// An answer. It is released when dropped.
pub struct Response {
    handle: i64,
    pub status: i32,
}

fn check(n: i32) -> Result<i32, Error> {
    if n < 0 {
        return Err(Error::from_errno(n));
    }
    Ok(n)
}

fn map(pairs: &[(&str, String)]) -> String {
    let mut o = Object::new();
    for (k, v) in pairs {
        o = o.text(k, v);
    }
    o.done()
}

impl Call {
    pub(crate) fn new(op: i32) -> Self {
        Call { op }
    }

    pub(crate) fn request(&self) -> Result<Value, Error> {
        let n = check(unsafe { in_len() })? as usize;
        let mut buf = vec![0u8; n];
        let mut off = 0;
        while off < n {
            let got = unsafe { in_read(buf.as_mut_ptr().add(off), off as i32, (n - off) as i32) };
            if got <= 0 {
                return Err(Error::new("Internal", "the host cut the request short"));
            }
            off += got as usize;
        }
        json::parse(&buf).map_err(|e| Error::new("Internal", e))
    }

    pub(crate) fn reply(&self, doc: &str) -> i32 {
        if unsafe { out_write(doc.as_ptr(), doc.len() as i32) } < 0 {
            return self.fail(&Error::new("Internal", "the reply is too large"));
        }
        0
    }

    pub(crate) fn fail(&self, e: &Error) -> i32 {
        let doc = Object::new().text("code", e.code).text("message", &e.message).done();
        unsafe { err_write(doc.as_ptr(), doc.len() as i32) };
        1
    }

    /// Stores the sandbox's reference durably.
    pub fn checkpoint(&self, doc: &str) -> Result<(), Error> {
        check(unsafe { checkpoint(0, doc.as_ptr(), doc.len() as i32) }).map(|_| ())
    }

    /// Stores the running exec's reference.
    pub fn checkpoint_exec(&self, doc: &str) -> Result<(), Error> {
        check(unsafe { checkpoint(1, doc.as_ptr(), doc.len() as i32) }).map(|_| ())
    }

    pub fn sleep(&self, ms: i32) -> Result<(), Error> {
        check(unsafe { sleep_ms(ms) }).map(|_| ())
    }

    /// Unix milliseconds.
    pub fn now(&self) -> i64 {
        unsafe { now_ms() }
    }

    pub fn canceled(&self) -> bool {
        unsafe { canceled() == 1 }
    }

    /// Writes a log line: 0 debug, 1 info, 2 warn, 3 error.
    pub fn log(&self, level: i32, line: &str) {
        unsafe { log(level, line.as_ptr(), line.len() as i32) };
    }

    /// Sends a request; any HTTP status is an answer.
    pub fn send(&self, r: &Request) -> Result<Response, Error> {
        let mut o = Object::new().text("route", r.route);
        if !r.params.is_empty() {
            o = o.raw("params", &map(&r.params));
        }
        if !r.query.is_empty() {
            o = o.raw("query", &map(&r.query));
        }
        if let Some(free) = &r.free {
            o = o.raw("free", free);
        }
        let meta = o.done();
        let handle = unsafe { http_open(meta.as_ptr(), meta.len() as i32, meta.as_ptr(), 0) };
        if handle < 0 {
            return Err(Error::from_errno(handle as i32));
        }
        let mut resp = Response { handle, status: 0 };
        resp.status = check(unsafe { http_status(handle) })?;
        Ok(resp)
    }

    /// Sends a request and returns the parsed body of a 2xx answer.
    pub fn json(&self, what: &str, r: &Request) -> Result<Value, Error> {
        let resp = self.send(r)?;
        status_error(what, resp.status)?;
        resp.json()
    }
}

impl Response {
    /// What of the body the plugin may see.
    pub fn body(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        let mut buf = [0u8; 4096];
        loop {
            let n = check(unsafe { http_read(self.handle, buf.as_mut_ptr(), buf.len() as i32) })?;
            if n == 0 {
                return Ok(out);
            }
            out.extend_from_slice(&buf[..n as usize]);
        }
    }

    pub fn json(&self) -> Result<Value, Error> {
        let body = self.body()?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        json::parse(&body).map_err(|e| Error::new("Internal", e))
    }

    /// A response header that the route's manifest entry names.
    pub fn header(&self, name: &str) -> Option<String> {
        let mut buf = vec![0u8; 1024];
        let n = unsafe { http_header(self.handle, name.as_ptr(), name.len() as i32, buf.as_mut_ptr(), buf.len() as i32) };
        if n < 0 || n as usize > buf.len() {
            return None;
        }
        buf.truncate(n as usize);
        String::from_utf8(buf).ok()
    }

    /// The next decoded frame; None after the last.
    pub fn next(&self) -> Result<Option<Value>, Error> {
        let mut buf = vec![0u8; 4096];
        loop {
            let n = unsafe { http_next(self.handle, buf.as_mut_ptr(), buf.len() as i32) };
            if n == E_END {
                return Ok(None);
            }
            if n == E_TOO_LARGE && buf.len() < MAX_HTTP_RESPONSE {
                let len = buf.len() * 4;
                buf = vec![0u8; len];
                continue;
            }
            let n = check(n)? as usize;
            return json::parse(&buf[..n]).map(Some).map_err(|e| Error::new("Internal", e));
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        unsafe { http_close(self.handle) };
    }
}
