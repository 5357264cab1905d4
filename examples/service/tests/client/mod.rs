//! The program as a child process, and an HTTP client for it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use ureq::Agent;
use ureq::http::Request;

/// The program, serving a directory. Any thread may send it requests. Dropping this kills the program.
pub struct Server {
    process: Child,
    /// Kept open because the program writes to it when it ends.
    output: BufReader<ChildStdout>,
    address: String,
    agent: Agent,
}

/// An answer, of any status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    /// Asserts that the answer has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

/// Encodes `text` as a part of a path or query.
pub fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn program(directory: &Path) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_trine-example-service"));
    program.arg(directory).arg("127.0.0.1:0").stdin(Stdio::null());
    program
}

impl Server {
    /// Starts the program over an empty directory, which is removed with its guard.
    pub fn over_nothing() -> (Server, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (Server::over(directory.path()), directory)
    }

    pub fn over(directory: &Path) -> Server {
        let mut process = program(directory).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it serves").to_owned();
        let config = Agent::config_builder().http_status_as_error(false).proxy(None);
        let config = config.max_idle_connections(64).max_idle_connections_per_host(64);
        let agent = config.build().new_agent();
        Server { process, output, address, agent }
    }

    /// The error message of a program that fails to start.
    pub fn refusal(directory: &Path) -> String {
        let ended = program(directory).output().unwrap();
        assert_eq!(ended.status.code(), Some(1));
        String::from_utf8(ended.stderr).unwrap()
    }

    /// Ends the program like a service manager, and waits until the store is closed.
    pub fn stop(mut self) {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
        let mut last = String::new();
        self.output.read_to_string(&mut last).unwrap();
        assert!(last.starts_with("closed "), "{last:?}");
        assert!(self.process.wait().unwrap().success());
    }

    /// Kills the program at once.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.address));
        let request = if path.starts_with("/batch") {
            request.header("content-type", "application/json")
        } else {
            request
        };
        let answer = if body.is_empty() && method != "PUT" {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let mut answer = answer.unwrap();
        let status = answer.status().as_u16();
        Answer { status, body: answer.body_mut().read_to_vec().unwrap() }
    }

    pub fn read(&self, path: &str) -> Answer {
        self.send("GET", path, b"").expect(200)
    }

    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, b"")
    }

    #[track_caller]
    pub fn put(&self, key: &str, value: &[u8]) {
        self.send("PUT", &format!("/items/{}", encoded(key)), value).expect(204);
    }

    #[track_caller]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.send("GET", &format!("/items/{}", encoded(key)), b"");
        if answer.status == 404 { None } else { Some(answer.expect(200).body) }
    }

    /// The items of a page, and its `next`.
    pub fn page(&self, query: &str) -> (Vec<(String, String)>, Option<String>) {
        let page = self.read(&format!("/items?{query}")).json();
        let items = page["items"].as_array().unwrap().iter().map(item).collect();
        (items, page["next"].as_str().map(str::to_owned))
    }

    /// The items of all pages, and the number of pages.
    pub fn all_pages(&self, query: &str) -> (Vec<(String, String)>, usize) {
        let (mut items, mut next) = self.page(query);
        let mut pages = 1;
        while let Some(after) = next {
            let (more, following) = self.page(&format!("{query}&after={}", encoded(&after)));
            assert!(more[0].0 > after, "{query}: a page begins before it should");
            items.extend(more);
            next = following;
            pages += 1;
        }
        (items, pages)
    }

    /// The items of an export.
    pub fn exported(&self, query: &str) -> Vec<(String, String)> {
        self.begin(&format!("/export?{query}"))()
    }

    /// Sends a request for lines of items. The closure reads them.
    pub fn begin(&self, path: &str) -> impl FnOnce() -> Vec<(String, String)> + use<> {
        let mut answer = self.agent.get(format!("{}{path}", self.address)).call().unwrap();
        assert_eq!(answer.status(), 200);
        move || {
            let lines = BufReader::new(answer.body_mut().as_reader()).lines();
            lines.map(|line| item(&serde_json::from_str(&line.unwrap()).unwrap())).collect()
        }
    }
}

fn item(item: &Value) -> (String, String) {
    (item["key"].as_str().unwrap().to_owned(), item["value"].as_str().unwrap().to_owned())
}

impl Drop for Server {
    fn drop(&mut self) {
        // The call fails if the program has ended already, which is fine.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}
