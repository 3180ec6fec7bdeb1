//! A small JSON reader and writer: a vendor's reply is looked at, not trusted.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// A JSON value. Accessors on a value of another type return the zero value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// There is no such value.
    Missing,
    Null,
    Bool(bool),
    /// A number as it was written.
    Number(String),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

static MISSING: Value = Value::Missing;

impl Value {
    /// The member at a path of names.
    pub fn get(&self, path: &[&str]) -> &Value {
        let mut v = self;
        for name in path {
            v = match v {
                Value::Object(members) => members.iter().find(|(k, _)| k == name).map(|(_, v)| v).unwrap_or(&MISSING),
                _ => &MISSING,
            };
        }
        v
    }

    /// Whether there is a value other than null.
    pub fn exists(&self) -> bool {
        !matches!(self, Value::Missing | Value::Null)
    }

    pub fn text(&self) -> &str {
        match self {
            Value::Text(s) => s,
            _ => "",
        }
    }

    pub fn int(&self) -> i64 {
        match self {
            Value::Number(s) => s.parse::<i64>().unwrap_or_else(|_| s.parse::<f64>().map(|f| f as i64).unwrap_or(0)),
            _ => 0,
        }
    }

    pub fn bool(&self) -> bool {
        matches!(self, Value::Bool(true))
    }

    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(v) => v,
            _ => &[],
        }
    }

    pub fn members(&self) -> &[(String, Value)] {
        match self {
            Value::Object(m) => m,
            _ => &[],
        }
    }
}

const MAX_DEPTH: usize = 64;

/// Parses one document.
pub fn parse(doc: &[u8]) -> Result<Value, &'static str> {
    let mut p = Parser { b: doc, i: 0, depth: 0 };
    let v = p.value()?;
    p.space();
    if p.i != doc.len() {
        return Err("data after the document");
    }
    Ok(v)
}

struct Parser<'a> {
    b: &'a [u8],
    i: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn space(&mut self) {
        while self.i < self.b.len() && matches!(self.b[self.i], b' ' | b'\n' | b'\t' | b'\r') {
            self.i += 1;
        }
    }

    fn peek(&mut self) -> u8 {
        self.space();
        *self.b.get(self.i).unwrap_or(&0)
    }

    fn expect(&mut self, c: u8) -> Result<(), &'static str> {
        if self.peek() != c {
            return Err("unexpected character");
        }
        self.i += 1;
        Ok(())
    }

    fn word(&mut self, w: &[u8], v: Value) -> Result<Value, &'static str> {
        if self.b[self.i..].starts_with(w) {
            self.i += w.len();
            return Ok(v);
        }
        Err("unexpected character")
    }

    fn value(&mut self) -> Result<Value, &'static str> {
        match self.peek() {
            b'{' => {
                self.enter()?;
                let mut out = Vec::new();
                if self.peek() == b'}' {
                    self.i += 1;
                } else {
                    loop {
                        self.space();
                        let k = self.string()?;
                        self.expect(b':')?;
                        out.push((k, self.value()?));
                        if self.peek() == b',' {
                            self.i += 1;
                            continue;
                        }
                        self.expect(b'}')?;
                        break;
                    }
                }
                self.depth -= 1;
                Ok(Value::Object(out))
            }
            b'[' => {
                self.enter()?;
                let mut out = Vec::new();
                if self.peek() == b']' {
                    self.i += 1;
                } else {
                    loop {
                        out.push(self.value()?);
                        if self.peek() == b',' {
                            self.i += 1;
                            continue;
                        }
                        self.expect(b']')?;
                        break;
                    }
                }
                self.depth -= 1;
                Ok(Value::Array(out))
            }
            b'"' => Ok(Value::Text(self.string()?)),
            b't' => self.word(b"true", Value::Bool(true)),
            b'f' => self.word(b"false", Value::Bool(false)),
            b'n' => self.word(b"null", Value::Null),
            _ => self.number(),
        }
    }

    fn enter(&mut self) -> Result<(), &'static str> {
        self.i += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("nested too deeply");
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, &'static str> {
        let start = self.i;
        while self.i < self.b.len() && matches!(self.b[self.i], b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') {
            self.i += 1;
        }
        let s = core::str::from_utf8(&self.b[start..self.i]).map_err(|_| "malformed number")?;
        if s.is_empty() || s.parse::<f64>().is_err() {
            return Err("expected a value");
        }
        Ok(Value::Number(String::from(s)))
    }

    fn hex4(&mut self) -> Result<u32, &'static str> {
        let end = self.i + 4;
        let s = self.b.get(self.i..end).and_then(|b| core::str::from_utf8(b).ok()).ok_or("malformed escape")?;
        self.i = end;
        u32::from_str_radix(s, 16).map_err(|_| "malformed escape")
    }

    fn string(&mut self) -> Result<String, &'static str> {
        if self.b.get(self.i) != Some(&b'"') {
            return Err("expected a string");
        }
        self.i += 1;
        let mut out: Vec<u8> = Vec::new();
        loop {
            let c = *self.b.get(self.i).ok_or("unterminated string")?;
            self.i += 1;
            match c {
                b'"' => return String::from_utf8(out).map_err(|_| "not UTF-8"),
                b'\\' => {
                    let e = *self.b.get(self.i).ok_or("unterminated string")?;
                    self.i += 1;
                    let r = match e {
                        b'"' | b'\\' | b'/' => e as u32,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => 10,
                        b'r' => 13,
                        b't' => 9,
                        b'u' => {
                            let mut r = self.hex4()?;
                            if (0xd800..0xdc00).contains(&r) && self.b[self.i..].starts_with(b"\\u") {
                                self.i += 2;
                                let low = self.hex4()?;
                                if !(0xdc00..0xe000).contains(&low) {
                                    return Err("unpaired surrogate");
                                }
                                r = 0x10000 + ((r - 0xd800) << 10) + (low - 0xdc00);
                            }
                            r
                        }
                        _ => return Err("unknown escape"),
                    };
                    let ch = char::from_u32(r).ok_or("unpaired surrogate")?;
                    let mut buf = [0u8; 4];
                    out.extend_from_slice(ch.encode_utf8(&mut buf).as_bytes());
                }
                0..=0x1f => return Err("control character in a string"),
                _ => out.push(c),
            }
        }
    }
}

/// Appends a JSON string.
pub fn put_text(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends any value.
pub fn put_value(out: &mut String, v: &Value) {
    match v {
        Value::Missing | Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(n),
        Value::Text(s) => put_text(out, s),
        Value::Array(items) => {
            out.push('[');
            for (i, x) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                put_value(out, x);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (i, (k, x)) in members.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                put_text(out, k);
                out.push(':');
                put_value(out, x);
            }
            out.push('}');
        }
    }
}

/// Builds a JSON object.
pub struct Object {
    doc: String,
}

impl Default for Object {
    fn default() -> Self {
        Object::new()
    }
}

impl Object {
    pub fn new() -> Self {
        Object { doc: String::from("{") }
    }

    fn key(&mut self, k: &str) {
        if self.doc.len() > 1 {
            self.doc.push(',');
        }
        put_text(&mut self.doc, k);
        self.doc.push(':');
    }

    pub fn text(mut self, k: &str, v: &str) -> Self {
        self.key(k);
        put_text(&mut self.doc, v);
        self
    }

    pub fn int(mut self, k: &str, v: i64) -> Self {
        self.key(k);
        let _ = write!(self.doc, "{}", v);
        self
    }

    pub fn bool(mut self, k: &str, v: bool) -> Self {
        self.key(k);
        self.doc.push_str(if v { "true" } else { "false" });
        self
    }

    pub fn value(mut self, k: &str, v: &Value) -> Self {
        self.key(k);
        put_value(&mut self.doc, v);
        self
    }

    /// A document that is JSON already.
    pub fn raw(mut self, k: &str, doc: &str) -> Self {
        self.key(k);
        self.doc.push_str(doc);
        self
    }

    pub fn done(mut self) -> String {
        self.doc.push('}');
        self.doc
    }
}
