//! An SFTP server with password logins. OpenSSH accepts only the passwords of system accounts, which no test should
//! create; so russh serves SSH here, and the `sftp-server` of OpenSSH serves SFTP.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey};
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Response, Session};
use russh::{Channel, ChannelId, MethodKind, MethodSet};
use tokio::net::TcpListener;

/// The authentication method of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordMethod {
    Password,
    /// Asks for the password in a prompt, as some appliances do.
    KeyboardInteractive,
}

pub struct PasswordServer {
    address: SocketAddr,
    fingerprint: String,
    tries: Arc<AtomicUsize>,
    accepting: tokio::task::JoinHandle<()>,
}

impl PasswordServer {
    pub const USERNAME: &'static str = "storage";
    pub const PASSWORD: &'static str = "correct horse";

    /// Sessions start in `folder`; `arguments` are passed to `sftp-server`.
    pub async fn start(method: PasswordMethod, folder: &Path, arguments: &[&str]) -> Self {
        let seed = holdfast_core::random::bytes::<32>();
        let pair = Ed25519Keypair::from_seed(&seed);
        let key = PrivateKey::new(KeypairData::Ed25519(pair), "").expect("a key");
        let fingerprint = key.public_key().fingerprint(HashAlg::Sha256).to_string();
        let config = Arc::new(Config {
            keys: vec![key],
            methods: MethodSet::from(&[kind(method)][..]),
            auth_rejection_time: Duration::from_millis(1),
            ..Config::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let tries = Arc::new(AtomicUsize::new(0));
        let visitor = Visitor {
            method,
            folder: folder.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            tries: tries.clone(),
            channels: Mutex::default(),
        };
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, visitor) = (config.clone(), visitor.another());
                tokio::spawn(async move {
                    // It does not matter when a client disconnects early.
                    if let Ok(session) = russh::server::run_stream(config, stream, visitor).await {
                        let _gone = session.await;
                    }
                });
            }
        });
        Self { address, fingerprint, tries, accepting }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `SHA256:…` of the host key.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// How many passwords were tried, right or wrong.
    pub fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }
}

impl Drop for PasswordServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn kind(method: PasswordMethod) -> MethodKind {
    match method {
        PasswordMethod::Password => MethodKind::Password,
        PasswordMethod::KeyboardInteractive => MethodKind::KeyboardInteractive,
    }
}

struct Visitor {
    method: PasswordMethod,
    folder: PathBuf,
    arguments: Vec<String>,
    tries: Arc<AtomicUsize>,
    channels: Mutex<HashMap<ChannelId, Channel<Msg>>>,
}

impl Visitor {
    fn another(&self) -> Self {
        Self {
            method: self.method,
            folder: self.folder.clone(),
            arguments: self.arguments.clone(),
            tries: self.tries.clone(),
            channels: Mutex::default(),
        }
    }

    fn judge(&self, user: &str, password: &[u8]) -> Auth {
        self.tries.fetch_add(1, Ordering::SeqCst);
        let is_right = user == PasswordServer::USERNAME && password == PasswordServer::PASSWORD.as_bytes();
        // Like OpenSSH, the server keeps offering its method.
        let methods = Some(MethodSet::from(&[kind(self.method)][..]));
        if is_right { Auth::Accept } else { Auth::Reject { proceed_with_methods: methods, partial_success: false } }
    }
}

impl Handler for Visitor {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        Ok(match self.method {
            PasswordMethod::Password => self.judge(user, password.as_bytes()),
            PasswordMethod::KeyboardInteractive => Auth::UnsupportedMethod,
        })
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        Ok(match response {
            None => Auth::Partial {
                name: Cow::Borrowed(""),
                instructions: Cow::Borrowed(""),
                prompts: Cow::Borrowed(&[(Cow::Borrowed("Password: "), false)]),
            },
            Some(mut answers) => match answers.next() {
                Some(answer) => self.judge(user, &answer),
                None => Auth::reject(),
            },
        })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.lock().expect("one thread at a time").insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let Some(opened) = self.channels.lock().expect("one thread at a time").remove(&channel) else {
            return session.channel_failure(channel);
        };
        let server = super::ssh_server::find_sftp_server();
        let mut command = tokio::process::Command::new(server);
        command.args(&self.arguments).current_dir(&self.folder).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        session.channel_success(channel)?;
        tokio::spawn(async move {
            let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
            let mut process = tokio::io::join(output, input);
            // Ends when either side closes.
            let _ended = tokio::io::copy_bidirectional(&mut opened.into_stream(), &mut process).await;
            drop(child);
        });
        Ok(())
    }
}
