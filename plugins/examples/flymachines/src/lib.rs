//! flymachines is a sealed provider plugin for Fly Machines.
//!
//! Fly's exec is one request that answers when the command has ended, with its
//! output in the answer; the host takes the output out before this code sees it.

use sbx::generated::{E_NETWORK, OP_PAUSE, OP_RESUME};
use sbx::{status_error, Call, Error, Object, Provider, Request, Value};

struct Machines;

sbx::serve!(Machines);

/// Fly's machine states. One that is not known is not terminal.
fn state(s: &str) -> &'static str {
    match s {
        "started" => "running",
        "created" | "starting" | "replacing" => "pending",
        "suspending" | "suspended" => "paused",
        "stopping" | "stopped" => "stopped",
        "destroying" | "destroyed" => "gone",
        _ => "unknown",
    }
}

/// Waits until the machine has reached a state; false when that takes longer than
/// one request may.
fn wait(c: &Call, until: &str) -> Result<bool, Error> {
    let mut q = Request::route("wait");
    q.query = vec![("state", String::from(until))];
    let resp = match c.send(&q) {
        Err(e) if e.errno == E_NETWORK => return Ok(false),
        other => other?,
    };
    if resp.status == 408 || resp.status == 504 {
        return Ok(false);
    }
    status_error("wait for machine", resp.status)?;
    Ok(true)
}

fn change(c: &Call, route: &str, until: &str) -> Result<String, Error> {
    c.json("change machine", &Request::route(route))?;
    while !wait(c, until)? {
        c.sleep(200)?;
    }
    Ok(Object::new().done())
}

/// How a command ended that a signal killed.
fn signaled(n: i64) -> String {
    let name = match n {
        1 => "HUP",
        2 => "INT",
        6 => "ABRT",
        9 => "KILL",
        10 => "USR1",
        11 => "SEGV",
        12 => "USR2",
        15 => "TERM",
        _ => "",
    };
    let reply = Object::new().text("status", "signaled");
    if name.is_empty() {
        return reply.done();
    }
    reply.text("signal", name).done()
}

/// Reads an RFC 3339 time in UTC, as Fly writes it.
fn unix(s: &str) -> Option<i64> {
    if !s.ends_with('Z') {
        return None;
    }
    let n = |from: usize, to: usize| s.get(from..to)?.parse::<i64>().ok();
    let (mut y, mut m, d) = (n(0, 4)?, n(5, 7)?, n(8, 10)?);
    // Days since 1970, with years that begin in March.
    if m <= 2 {
        y -= 1;
        m += 12;
    }
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * (m - 3) + 2) / 5 + d - 719469;
    Some(((days * 24 + n(11, 13)?) * 60 + n(14, 16)?) * 60 + n(17, 19)?)
}

impl Provider for Machines {
    fn create(&self, c: &Call, _: &Value) -> Result<String, Error> {
        c.json("create machine", &Request::route("create"))?;
        // A machine that is slow is left to the host's polling.
        let state = if wait(c, "started").unwrap_or(false) { "running" } else { "pending" };
        Ok(Object::new().text("state", state).int("pollMs", 250).done())
    }

    fn status(&self, c: &Call, _: &Value) -> Result<String, Error> {
        let v = c.json("get machine", &Request::route("get"))?;
        Ok(Object::new().text("state", state(v.get(&["state"]).text())).int("pollMs", 250).done())
    }

    fn destroy(&self, c: &Call, _: &Value) -> Result<String, Error> {
        let resp = c.send(&Request::route("destroy"))?;
        if resp.status != 404 {
            status_error("destroy machine", resp.status)?;
        }
        Ok(Object::new().done())
    }

    fn list(&self, c: &Call, _: &Value) -> Result<String, Error> {
        let v = c.json("list machines", &Request::route("list"))?;
        let mut items = String::from("[");
        for m in v.items() {
            let state = state(m.get(&["state"]).text());
            if state == "gone" {
                continue;
            }
            if items.len() > 1 {
                items.push(',');
            }
            let item = Object::new()
                .text("sandbox", m.get(&["id"]).text())
                .text("name", m.get(&["name"]).text())
                .value("labels", m.get(&["config", "metadata"]))
                .text("state", state)
                .int("createdAt", unix(m.get(&["created_at"]).text()).unwrap_or(0));
            items.push_str(&item.done());
        }
        items.push(']');
        Ok(Object::new().raw("items", &items).done())
    }

    fn exec(&self, c: &Call, _: &Value) -> Result<String, Error> {
        let resp = c.send(&Request::route("exec"))?;
        if resp.status == 408 || resp.status == 504 {
            return Ok(Object::new().text("status", "timed_out").done());
        }
        status_error("run command", resp.status)?;
        let v = resp.json()?;
        let (code, signal) = (v.get(&["exit_code"]), v.get(&["exit_signal"]));
        if signal.exists() && signal.int() != 0 {
            return Ok(signaled(signal.int()));
        }
        // Fly requires no field of the answer, and may leave out a code of 0; an
        // answer with none of them tells nothing.
        if !code.exists() && !signal.exists() && !v.get(&["stdout"]).exists() && !v.get(&["stderr"]).exists() {
            return Ok(Object::new().text("status", "lost").done());
        }
        // A shell tells of a signal as 128 and its number.
        Ok(match code.int() {
            n @ (137 | 143) => signaled(n - 128),
            n => Object::new().text("status", "exited").int("exitCode", n).done(),
        })
    }

    fn other(&self, c: &Call, op: i32, _: &Value) -> Result<String, Error> {
        match op {
            OP_PAUSE => change(c, "suspend", "suspended"),
            OP_RESUME => change(c, "start", "started"),
            _ => Err(Error::unsupported("this operation")),
        }
    }
}
