//! A small SSH server on loopback for the built-in demo: one key, and `exec` through `sh -c` in one directory.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{HashAlg, PrivateKey};
use russh::server::{self, Auth, ChannelOpenHandle, Handle, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::{JoinHandle, JoinSet};

/// The raw public key in a line of `authorized_keys`; `None` if it is not an ed25519 key.
pub fn public_key(line: &str) -> Option<[u8; 32]> {
    let key = russh::keys::PublicKey::from_openssh(line).ok()?;
    match key.key_data() {
        KeyData::Ed25519(key) => Some(key.0),
        _ => None,
    }
}

/// A running demo server; it stops accepting connections when dropped.
pub struct Endpoint {
    address: SocketAddr,
    host_key: String,
    accepting: JoinHandle<()>,
}

impl Endpoint {
    /// `host_seed` must be fresh random bytes; `user_key` is the raw ed25519 public key that may log in.
    pub async fn start(host_seed: [u8; 32], user_key: [u8; 32], username: &str, dir: &Path) -> io::Result<Self> {
        let key = PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&host_seed)), "")
            .map_err(io::Error::other)?;
        let host_key = key.public_key().fingerprint(HashAlg::Sha256).to_string();
        let config = Arc::new(server::Config {
            keys: vec![key],
            methods: (&[russh::MethodKind::PublicKey][..]).into(),
            auth_rejection_time: Duration::from_millis(200),
            auth_rejection_time_initial: Some(Duration::ZERO),
            window_size: 8 << 20,
            maximum_packet_size: 65_535,
            channel_buffer_size: 32,
            nodelay: true,
            ..server::Config::default()
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let peer = Peer { user_key, username: username.into(), dir: dir.into(), channels: HashMap::new() };
        let accepting = tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                tokio::select! {
                    Some(_) = sessions.join_next() => {}
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                            continue;
                        };
                        let _ = stream.set_nodelay(true);
                        let (config, peer) = (config.clone(), peer.fresh());
                        sessions.spawn(async move {
                            if let Ok(session) = server::run_stream(config, stream, peer).await {
                                let _ = session.await;
                            }
                        });
                    }
                }
            }
        });
        Ok(Self { address, host_key, accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Fingerprint to pin.
    pub fn host_key(&self) -> &str {
        &self.host_key
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Peer {
    user_key: [u8; 32],
    username: String,
    dir: PathBuf,
    channels: HashMap<ChannelId, Channel<Msg>>,
}

impl Peer {
    fn fresh(&self) -> Self {
        Self {
            user_key: self.user_key,
            username: self.username.clone(),
            dir: self.dir.clone(),
            channels: HashMap::new(),
        }
    }
}

impl server::Handler for Peer {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let known = matches!(key.public_key.key_data(), KeyData::Ed25519(offered) if offered.0 == self.user_key);
        Ok(if known && user == self.username { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        self.channels.remove(&channel);
        Ok(())
    }

    async fn exec_request(&mut self, id: ChannelId, data: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        let child = self.channels.remove(&id).and_then(|channel| {
            let command = String::from_utf8(data.to_vec()).ok()?;
            let child = Command::new("sh")
                .arg("-c")
                .arg(command)
                .current_dir(&self.dir)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
                .ok()?;
            Some((channel, child))
        });
        let Some((channel, child)) = child else { return session.channel_failure(id) };
        session.channel_success(id)?;
        tokio::spawn(serve(channel, child, session.handle()));
        Ok(())
    }
}

/// Serves the child's three pipes until it ends or the client closes the channel.
async fn serve(channel: Channel<Msg>, mut child: Child, handle: Handle) {
    let id = channel.id();
    let group = child.id();
    let (read, write) = channel.split();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = tokio::select! {
        () = feed(read, stdin) => None,
        (_, _, status) = async { tokio::join!(send(stdout, &write, None), send(stderr, &write, Some(1)), child.wait()) } => {
            status.ok()
        }
    };
    match ended {
        Some(status) => report(id, status, &handle).await,
        None => {
            kill(group).await;
            let _ = child.kill().await;
        }
    }
    let _ = handle.eof(id).await;
    let _ = handle.close(id).await;
}

/// Ends the shell's whole process group: the shell's own children hold the pipes too.
async fn kill(group: Option<u32>) {
    if let Some(group) = group {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status().await;
    }
}

/// Returns only when the client closed the channel, sent a signal or is gone.
async fn feed(mut read: ChannelReadHalf, mut stdin: Option<ChildStdin>) {
    loop {
        match read.wait().await {
            Some(ChannelMsg::Data { data }) => {
                if let Some(pipe) = &mut stdin
                    && pipe.write_all(&data).await.is_err()
                {
                    stdin = None;
                }
            }
            Some(ChannelMsg::Eof) => stdin = None,
            Some(ChannelMsg::Close) | None => return,
            Some(ChannelMsg::Signal { .. }) => return,
            Some(_) => {}
        }
    }
}

async fn send(pipe: Option<impl AsyncRead + Unpin>, write: &ChannelWriteHalf<Msg>, ext: Option<u32>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(64 << 10);
        match pipe.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let data: Bytes = buffer.split().freeze();
        let sent = match ext {
            None => write.data_bytes(data).await,
            Some(ext) => write.extended_data_bytes(ext, data).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn report(id: ChannelId, status: ExitStatus, handle: &Handle) {
    use std::os::unix::process::ExitStatusExt;
    let _ = match (status.code(), status.signal()) {
        (Some(code), _) => handle.exit_status_request(id, u32::try_from(code).unwrap_or(255)).await,
        (None, number) => {
            let name = match number {
                Some(2) => Sig::INT,
                Some(6) => Sig::ABRT,
                Some(9) => Sig::KILL,
                Some(11) => Sig::SEGV,
                Some(13) => Sig::PIPE,
                _ => Sig::TERM,
            };
            handle.exit_signal_request(id, name, false, String::new(), String::new()).await
        }
    };
}
