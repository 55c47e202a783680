//! SSH: connects (directly or through a jump host), runs commands and opens SFTP. Only this module uses russh.
//!
//! One rule follows from how russh works: its session loop puts every packet into the channel's bounded buffer and
//! waits while that is full. A stalled reader therefore stalls the whole connection (this is the backpressure), so a
//! process's stdout must be drained while its stdin is fed, and independent streams need separate connections.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use holdfast_core::Secret;
use russh::client::{self, AuthResult, DisconnectReason, Handle, KeyboardInteractiveAuthResponse, Msg};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{
    Channel, ChannelId, ChannelMsg, ChannelStream, Disconnect, MethodKind, Preferred, cipher, compression, kex, mac,
};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::egress::Egress;

pub mod endpoint;
mod error;
mod process;
mod shared;

use self::shared::{KeepOpen, Shared, Tied};
pub use error::SshError;
pub use process::{Control, Exit, Process, Stderr, Stdin, Stdout};

/// Where to connect, as whom, and which host key is expected there.
#[derive(Clone)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub username: String,
    pub credential: Credential,
    /// `SHA256:` and unpadded base64; `None` accepts any key (first contact; read it from [`Connection::host_key`]).
    pub pinned_host_key: Option<String>,
    /// The round-trip time as measured earlier; `None` means unknown.
    pub round_trip: Option<Duration>,
}

/// What we authenticate with.
#[derive(Clone)]
pub enum Credential {
    Key(KeySeed),
    Password(Secret),
}

/// The private half of a user's ed25519 key; wiped when dropped, never printed.
#[derive(Debug, Clone)]
pub struct KeySeed(pub Secret);

impl KeySeed {
    /// Decodes the key, which is stored as 32 bytes in base64.
    fn bytes(&self) -> Result<[u8; 32], SshError> {
        let decoded = BASE64_STANDARD.decode(self.0.reveal()).ok().and_then(|bytes| bytes.try_into().ok());
        decoded.ok_or_else(|| SshError::Protocol("the SSH key in the database is not valid".into()))
    }
}

/// How long to wait for the other side.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For establishing the whole connection: name resolution, TCP, key exchange and authentication, of jump host and
    /// target.
    pub connect: Duration,
    /// How long the connection may be silent before the server is probed; three unanswered probes end it.
    pub keepalive: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(15), keepalive: Duration::from_secs(15) }
    }
}

/// How long a server may take to open a channel and start a command on it.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// The time limit for measuring a round trip; a slower server is not measured.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// How much a server may send before we extend its window. If this is too small, a distant server waits for us; if it
/// is too large, OpenSSH, whose buffer grows to this size in small steps and is copied at each, spends more CPU time on
/// that than on everything else.
const MIN_WINDOW_BYTES: u64 = 2 << 20;
const MAX_WINDOW_BYTES: u64 = 24 << 20;
/// Measured: with this many bytes per microsecond of round-trip time, latency does not limit throughput. Data that
/// waits in the window takes up memory.
const WINDOW_BYTES_A_MICROSECOND: u64 = 400;
/// Assumed before the first measurement: a compromise between waiting for distant servers and memory.
const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(15);
/// The largest packet that russh accepts; OpenSSH sends half of that anyway.
const PACKET_BYTES: u32 = 65_535;
/// Packets that may wait for a slow reader; this times the packet size bounds a channel's memory.
const BUFFERED_PACKETS: usize = 32;
/// russh reads each packet's length separately; without a buffer each of these reads would be a system call.
const READ_BUFFER_BYTES: usize = 256 << 10;

struct Events {
    shared: Shared,
    pinned: Option<String>,
}

impl client::Handler for Events {
    type Error = russh::Error;

    /// Called during the key exchange: on a mismatch russh stops here, before any authentication is sent.
    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else { return Ok(false) };
        let offered = key.fingerprint(HashAlg::Sha256).to_string();
        let mut state = self.shared.lock();
        state.mismatch = self.pinned.as_ref().is_some_and(|pinned| *pinned != offered);
        let accepted = !state.mismatch;
        state.offered = Some(offered);
        Ok(accepted)
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut client::Session) -> Result<(), Self::Error> {
        self.shared.lock().open.remove(&channel);
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<Self::Error>) -> Result<(), Self::Error> {
        self.shared.lock().reason = Some(match reason {
            DisconnectReason::ReceivedDisconnect(info) => info.message,
            DisconnectReason::Error(error) => error.to_string(),
        });
        Ok(())
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.shared.lock().open.clear();
    }
}

struct Session {
    handle: Handle<Events>,
    shared: Shared,
    keep_open: Vec<KeepOpen>,
    host_key: String,
}

impl Session {
    /// Key exchange, host key check and authentication over an open stream.
    async fn start<S>(
        stream: S,
        target: &Target,
        config: Arc<client::Config>,
        mut keep_open: Vec<KeepOpen>,
    ) -> Result<Self, SshError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Shared::default();
        let events = Events { shared: shared.clone(), pinned: target.pinned_host_key.clone() };
        let (sender, released) = oneshot::channel();
        let stream = Tied { inner: BufReader::with_capacity(READ_BUFFER_BYTES, stream), released };
        let mut handle = client::connect_stream(config, stream, events).await.map_err(|error| {
            let is_ssh = shared.lock().offered.is_some() || matches!(error, russh::Error::NoCommonAlgo { .. });
            shared.failure(error).told((&target.host, target.port), is_ssh)
        })?;
        let (answer, refused) = match &target.credential {
            Credential::Key(seed) => (with_key(&mut handle, target, seed, &shared).await?, "key"),
            Credential::Password(password) => {
                (with_password(&mut handle, target, password, &shared).await?, "password")
            }
        };
        if let AuthResult::Failure { remaining_methods, .. } = answer {
            // A connection that broke in the meantime looks like a refusal, except that no remaining methods are
            // listed.
            let is_broken = remaining_methods.is_empty() && handle.is_closed();
            return Err(if is_broken { shared.lost() } else { SshError::Auth(refused) });
        }
        keep_open.push(Arc::new(sender));
        let offered = shared.lock().offered.clone();
        let host_key = offered.ok_or_else(|| SshError::Protocol("the server showed no host key".to_owned()))?;
        Ok(Self { handle, shared, keep_open, host_key })
    }

    async fn disconnect(&self) {
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }
}

async fn with_key(
    handle: &mut Handle<Events>,
    target: &Target,
    seed: &KeySeed,
    shared: &Shared,
) -> Result<AuthResult, SshError> {
    let pair = Ed25519Keypair::from_seed(&seed.bytes()?);
    let key = PrivateKey::new(KeypairData::Ed25519(pair), "").map_err(|error| SshError::Protocol(error.to_string()))?;
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
    handle.authenticate_publickey(target.username.as_str(), key).await.map_err(|error| shared.failure(error))
}

/// Tries password authentication and then, if the server offers it, keyboard-interactive authentication with the
/// password as the answer to its only prompt.
async fn with_password(
    handle: &mut Handle<Events>,
    target: &Target,
    password: &Secret,
    shared: &Shared,
) -> Result<AuthResult, SshError> {
    /// A server may send empty rounds before and after its prompt.
    const ROUNDS: usize = 4;
    let username = target.username.as_str();
    let failure = |error| shared.failure(error);
    let answer = handle.authenticate_password(username, password.reveal()).await.map_err(failure)?;
    let AuthResult::Failure { remaining_methods, .. } = &answer else { return Ok(answer) };
    if !remaining_methods.contains(&MethodKind::KeyboardInteractive) {
        return Ok(answer);
    }
    let mut round = handle.authenticate_keyboard_interactive_start(username, None).await.map_err(failure)?;
    for _ in 0..ROUNDS {
        let answers = match round {
            KeyboardInteractiveAuthResponse::Success => return Ok(AuthResult::Success),
            KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success } => {
                return Ok(AuthResult::Failure { remaining_methods, partial_success });
            }
            KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => match prompts.as_slice() {
                [] => Vec::new(),
                [question] if !question.echo => vec![password.reveal().to_owned()],
                _ => return Ok(answer),
            },
        };
        round = handle.authenticate_keyboard_interactive_respond(answers).await.map_err(failure)?;
    }
    Ok(answer)
}

/// An authenticated connection.
pub struct Connection {
    session: Session,
    jump: Option<Session>,
}

impl Connection {
    /// Addresses that we connect to ourselves are checked by `egress`; a target behind a jump host is connected to by
    /// the jump host.
    pub async fn open(
        target: &Target,
        jump: Option<&Target>,
        timeouts: Timeouts,
        egress: &Egress,
    ) -> Result<Self, SshError> {
        let config = Arc::new(config(timeouts, target.round_trip));
        tokio::time::timeout(timeouts.connect, Self::establish(target, jump, config, egress))
            .await
            .unwrap_or(Err(SshError::Timeout))
            .map_err(|error| {
                let first = jump.unwrap_or(target);
                error.told((&first.host, first.port), true)
            })
    }

    async fn establish(
        target: &Target,
        jump: Option<&Target>,
        config: Arc<client::Config>,
        egress: &Egress,
    ) -> Result<Self, SshError> {
        let Some(jump) = jump else {
            let session = Session::start(dial(target, egress).await?, target, config, Vec::new()).await?;
            return Ok(Self { session, jump: None });
        };
        let stream = dial(jump, egress).await?;
        let outer = Session::start(stream, jump, config.clone(), Vec::new()).await.map_err(SshError::of_jump)?;
        let channel = outer
            .handle
            .channel_open_direct_tcpip(target.host.as_str(), target.port.into(), "127.0.0.1", 0)
            .await
            .map_err(|error| match error {
                russh::Error::ChannelOpenFailure(reason) => SshError::Connect(format!("jump host: {reason:?}")),
                other => outer.shared.failure(other),
            })?;
        let inner = Session::start(channel.into_stream(), target, config, outer.keep_open.clone()).await?;
        Ok(Self { session: inner, jump: Some(outer) })
    }

    /// Fingerprint of the key that the server presented.
    pub fn host_key(&self) -> &str {
        &self.session.host_key
    }

    /// Fingerprint of the key that the jump host presented.
    pub fn jump_host_key(&self) -> Option<&str> {
        self.jump.as_ref().map(|jump| jump.host_key.as_str())
    }

    /// Measures one round trip to the SSH server, including a jump host. Meant for an idle connection.
    pub async fn round_trip(&self) -> Option<Duration> {
        let begun = Instant::now();
        let answered = tokio::time::timeout(PING_LIMIT, self.session.handle.send_ping()).await;
        (matches!(answered, Ok(Ok(()))) && !self.is_closed()).then(|| begun.elapsed())
    }

    pub fn is_closed(&self) -> bool {
        self.session.handle.is_closed()
    }

    async fn channel(&self) -> Result<Channel<Msg>, SshError> {
        self.session.handle.channel_open_session().await.map_err(|error| self.session.shared.failure(error))
    }

    /// Runs a command through the account's shell and returns once the server has accepted it. Output up to the line
    /// with `marker`, on stdout and on stderr, does not come from the command and is discarded.
    pub(crate) async fn exec(&self, command: &str, marker: &str) -> Result<Process, SshError> {
        tokio::time::timeout(OPEN_LIMIT, self.start(command, marker)).await.unwrap_or(Err(SshError::Timeout))
    }

    async fn start(&self, command: &str, marker: &str) -> Result<Process, SshError> {
        let shared = &self.session.shared;
        let mut channel = self.channel().await?;
        let (alive, gone) = watch::channel(true);
        shared.lock().open.insert(channel.id(), alive);
        channel.exec(true, command).await.map_err(|error| shared.failure(error))?;
        accepted(&mut channel, shared).await?;
        // The session may have ended between opening and registering; then nothing would wake the writer.
        if self.is_closed() {
            return Err(shared.lost());
        }
        Ok(Process::new(channel, marker, shared, gone, &self.session.keep_open))
    }

    /// Opens a byte stream to the server's SFTP subsystem. The connection must be kept alive while it is used.
    pub async fn sftp_channel(&self) -> Result<ChannelStream<Msg>, SshError> {
        tokio::time::timeout(OPEN_LIMIT, self.open_sftp()).await.unwrap_or(Err(SshError::Timeout))
    }

    async fn open_sftp(&self) -> Result<ChannelStream<Msg>, SshError> {
        let shared = &self.session.shared;
        let mut channel = self.channel().await?;
        channel.request_subsystem(true, "sftp").await.map_err(|error| shared.failure(error))?;
        accepted(&mut channel, shared).await?;
        Ok(channel.into_stream())
    }

    /// Disconnects properly. Dropping the connection also ends it, but without a disconnect message.
    pub async fn close(self) {
        self.session.disconnect().await;
        if let Some(jump) = &self.jump {
            jump.disconnect().await;
        }
    }
}

/// Waits for the reply to an exec or subsystem request.
async fn accepted(channel: &mut Channel<Msg>, shared: &Shared) -> Result<(), SshError> {
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => return Ok(()),
            Some(ChannelMsg::Failure) => {
                let _ = channel.close().await;
                return Err(SshError::ExecRefused);
            }
            Some(ChannelMsg::WindowAdjusted { .. }) => {}
            Some(ChannelMsg::Close) | None => return Err(shared.lost()),
            Some(other) => return Err(SshError::Protocol(format!("unexpected answer {other:?}"))),
        }
    }
}

/// Connects to an address that was checked. As everywhere else, a single refused address refuses the name.
async fn dial(target: &Target, egress: &Egress) -> Result<TcpStream, SshError> {
    let addresses = tokio::net::lookup_host((target.host.as_str(), target.port))
        .await
        .map_err(|error| SshError::Dns(error.to_string()))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    for address in &addresses {
        egress.check(&target.host, address.ip()).map_err(SshError::Forbidden)?;
    }
    let mut failure = SshError::Dns("no address".into());
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|error| SshError::Connect(error.to_string()))?;
                return Ok(stream);
            }
            Err(error) => failure = SshError::Connect(format!("{address}: {error}")),
        }
    }
    Err(failure)
}

fn window(round_trip: Option<Duration>) -> u32 {
    let micros = u64::try_from(round_trip.unwrap_or(UNKNOWN_ROUND_TRIP).as_micros()).unwrap_or(u64::MAX);
    let wanted = MIN_WINDOW_BYTES.saturating_add(micros.saturating_mul(WINDOW_BYTES_A_MICROSECOND));
    u32::try_from(wanted.min(MAX_WINDOW_BYTES)).unwrap_or(u32::MAX)
}

fn config(timeouts: Timeouts, round_trip: Option<Duration>) -> client::Config {
    let ciphers = vec![
        cipher::AES_256_GCM,
        cipher::AES_128_GCM,
        cipher::CHACHA20_POLY1305,
        cipher::AES_256_CTR,
        cipher::AES_192_CTR,
        cipher::AES_128_CTR,
    ];
    client::Config {
        window_size: window(round_trip),
        maximum_packet_size: PACKET_BYTES,
        channel_buffer_size: BUFFERED_PACKETS,
        keepalive_interval: Some(timeouts.keepalive),
        keepalive_max: 3,
        nodelay: true,
        preferred: Preferred {
            kex: Cow::Owned(vec![
                kex::MLKEM768X25519_SHA256,
                kex::CURVE25519,
                kex::CURVE25519_PRE_RFC_8731,
                kex::ECDH_SHA2_NISTP256,
                kex::ECDH_SHA2_NISTP384,
                kex::ECDH_SHA2_NISTP521,
                kex::DH_G16_SHA512,
                kex::DH_G14_SHA256,
                kex::EXTENSION_SUPPORT_AS_CLIENT,
                kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
            ]),
            key: Cow::Owned(vec![
                Algorithm::Ed25519,
                Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
                Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
                Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
                Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
                Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
            ]),
            cipher: Cow::Owned(ciphers),
            mac: Cow::Owned(vec![mac::HMAC_SHA512_ETM, mac::HMAC_SHA256_ETM, mac::HMAC_SHA512, mac::HMAC_SHA256]),
            compression: Cow::Owned(vec![compression::NONE]),
            ..Preferred::default()
        },
        ..client::Config::default()
    }
}
