//! Kit for writing an sbxhost provider plugin in Rust.
//!
//! Implement [`Provider`] and call [`serve!`] once:
//!
//! ```ignore
//! struct Vendor;
//! impl sbx::Provider for Vendor { /* … */ }
//! sbx::serve!(Vendor);
//! ```
//!
//! Build a reactor for `wasm32-unknown-unknown`, crate type `cdylib`. The crate
//! needs `alloc` only.
//!
//! Every call starts from the module's initial state: statics set in one call are
//! gone in the next. What must last goes into [`Call::checkpoint`].

#![no_std]

extern crate alloc;

pub mod generated;
pub mod json;

mod call;

pub use call::{status_error, Call, Error, Request, Response};
pub use json::{Object, Value};

use alloc::string::String;
use alloc::vec::Vec;

/// What a plugin implements. Every method has the parsed request and returns the
/// reply document, or an error. The defaults refuse with `Unsupported`.
pub trait Provider {
    fn create(&self, c: &Call, request: &Value) -> Result<String, Error>;
    fn status(&self, c: &Call, request: &Value) -> Result<String, Error>;
    fn destroy(&self, c: &Call, request: &Value) -> Result<String, Error>;
    fn list(&self, c: &Call, request: &Value) -> Result<String, Error>;
    fn exec(&self, _c: &Call, _request: &Value) -> Result<String, Error> {
        Err(Error::unsupported("exec"))
    }
    /// Any other operation: one of the `generated::OP_…` numbers.
    fn other(&self, _c: &Call, op: i32, _request: &Value) -> Result<String, Error> {
        let _ = op;
        Err(Error::unsupported("this operation"))
    }
}

/// Runs one operation. [`serve!`] exports it.
pub fn run(provider: &dyn Provider, op: i32) -> i32 {
    let c = Call::new(op);
    let request = match c.request() {
        Ok(v) => v,
        Err(e) => return c.fail(&e),
    };
    let result = match op {
        generated::OP_CREATE => provider.create(&c, &request),
        generated::OP_STATUS => provider.status(&c, &request),
        generated::OP_DESTROY => provider.destroy(&c, &request),
        generated::OP_LIST => provider.list(&c, &request),
        generated::OP_EXEC => provider.exec(&c, &request),
        _ => provider.other(&c, op, &request),
    };
    match result {
        Ok(doc) => c.reply(&doc),
        Err(e) => c.fail(&e),
    }
}

/// Exports the entry point for a provider value.
#[macro_export]
macro_rules! serve {
    ($provider:expr) => {
        #[no_mangle]
        pub extern "C" fn sbx_v1_call(op: i32) -> i32 {
            $crate::run(&$provider, op)
        }
    };
}

/// Bytes of a document.
pub type Bytes = Vec<u8>;
