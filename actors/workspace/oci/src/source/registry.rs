//! Client of the OCI distribution protocol, for pulls. Every answer is bounded in bytes and in the
//! time without one; credentials go to the registry and to the server of tokens that it names.

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hivekeep_kernel::fault_point;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use reqwest::{Certificate, Client, Response, StatusCode, Url, redirect};
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio_rustls::rustls::crypto::ring;
use tokio_util::sync::CancellationToken;

use super::FetchTerms;
use crate::credentials::{Challenge, RegistryLogin, basic_header, bearer_header, login_for};
use crate::digest::RunningDigest;
use crate::manifest::{self, BlobRef};
use crate::options::DOCUMENT_BYTES;
use crate::{Error, OciResult, RegistryRef, Sha256Digest};

const CONNECT: Duration = Duration::from_secs(10);
const REDIRECTS: usize = 5;
const CA_BYTES: u64 = 1 << 20;
const USER_AGENT: &str = concat!("hivekeep/", env!("CARGO_PKG_VERSION"));

/// Client of one repository.
pub(crate) struct RegistryClient<'a> {
    client: Client,
    reference: &'a RegistryRef,
    base: Url,
    login: Option<RegistryLogin>,
    /// Header that answered the registry's last challenge.
    authorization: Mutex<Option<HeaderValue>>,
    stall: Duration,
    work: PathBuf,
    cancel: &'a CancellationToken,
}

impl<'a> RegistryClient<'a> {
    /// Prepares a client; nothing is sent yet. Blocks to read credentials.
    pub(super) fn open(reference: &'a RegistryRef, terms: &FetchTerms<'a>) -> OciResult<Self> {
        let plain = terms.policy.plain_http(reference.registry());
        let scheme = if plain { "http" } else { "https" };
        let base = format!("{scheme}://{}/v2/{}/", reference.host(), reference.repository());
        let text = reference.to_string();
        let bad = |_| Error::Reference { text, reason: "its host is not valid".to_owned() };
        Ok(Self {
            client: client(plain, &terms.policy.0.ca_file)?,
            reference,
            base: base.parse().map_err(bad)?,
            login: login_for(&terms.policy.0.auth_file, reference.registry())?,
            authorization: Mutex::default(),
            stall: terms.limits.stall,
            work: terms.work.to_owned(),
            cancel: terms.cancel,
        })
    }

    pub(crate) fn reference(&self) -> &'a RegistryRef {
        self.reference
    }

    /// Document that the reference names.
    pub(super) async fn top(&self) -> OciResult<(Vec<u8>, Sha256Digest)> {
        let bytes = self.manifest(&self.reference.version()).await?;
        let digest = Sha256Digest::of(&bytes);
        if let Some(expected) = self.reference.digest() {
            digest.expect(expected, "the manifest")?;
        }
        Ok((bytes, digest))
    }

    /// Manifest of a tag or digest, not checked.
    pub(crate) async fn manifest(&self, version: &str) -> OciResult<Vec<u8>> {
        let response = self.get(&format!("manifests/{version}"), version).await?;
        self.body(response, DOCUMENT_BYTES).await
    }

    /// Small blob, not checked.
    pub(crate) async fn document(&self, digest: &Sha256Digest) -> OciResult<Vec<u8>> {
        let response = self.get(&format!("blobs/{digest}"), &digest.to_string()).await?;
        self.body(response, DOCUMENT_BYTES).await
    }

    /// Downloads a blob into the work folder, checked while it is written.
    pub(super) async fn download(
        &self,
        blob: BlobRef,
        tell: &(dyn Fn(u64) + Send + Sync),
    ) -> OciResult<std::fs::File> {
        let mut response =
            self.get(&format!("blobs/{}", blob.digest), &blob.digest.to_string()).await?;
        let path = self.work.join(format!("blob-{}", uuid::Uuid::new_v4().simple()));
        let writing = || format!("write {}", path.display());
        let file = tokio::fs::File::create_new(&path).await.map_err(Error::io(writing()))?;
        let mut file = tokio::io::BufWriter::with_capacity(256 << 10, file);
        let (mut digest, mut bytes) = (RunningDigest::default(), 0u64);
        while let Some(chunk) = self.within(response.chunk()).await? {
            bytes += chunk.len() as u64;
            if bytes > blob.bytes {
                return Err(self.failed(format!("a layer is longer than its {} bytes", blob.bytes)));
            }
            digest.update(&chunk);
            file.write_all(&chunk).await.map_err(Error::io(writing()))?;
            fault_point!("pull.in_layer");
            tell(bytes);
        }
        file.flush().await.map_err(Error::io(writing()))?;
        digest.finish().expect(blob.digest, "a layer")?;
        std::fs::File::open(&path).map_err(Error::io(writing()))
    }

    /// Asks for something of the repository; answers one challenge.
    async fn get(&self, path: &str, what: &str) -> OciResult<Response> {
        let url = self.base.join(path).map_err(|_| self.failed("the path is not valid"))?;
        let mut answered = false;
        loop {
            let authorization = self.authorization.lock().await.clone();
            let mut request = self.client.get(url.clone()).header(ACCEPT, manifest::ACCEPT);
            if let Some(value) = authorization {
                request = request.header(AUTHORIZATION, value);
            }
            let response = self.within(request.send()).await?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                StatusCode::UNAUTHORIZED if !answered => {
                    answered = true;
                    let challenge = Challenge::of(response.headers());
                    let value = self.answer(challenge).await?;
                    *self.authorization.lock().await = Some(value);
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied()),
                StatusCode::NOT_FOUND => {
                    let place =
                        format!("{}/{}", self.reference.registry(), self.reference.repository());
                    return Err(Error::NotFound { what: what.to_owned(), place });
                }
                status => return Err(self.failed(format!("it answered {status}"))),
            }
        }
    }

    async fn answer(&self, challenge: Option<Challenge>) -> OciResult<HeaderValue> {
        let basic = || self.login.as_ref().and_then(basic_header);
        let Some(Challenge::Bearer { realm, service, scope }) = challenge else {
            return challenge.and_then(|_| basic()).ok_or_else(|| self.denied());
        };
        let mut url: Url =
            realm.parse().map_err(|_| self.failed("its server of tokens has no valid address"))?;
        // No password goes out in the clear because a registry says so.
        if url.scheme() != "https" && self.base.scheme() == "https" {
            return Err(self.failed("its server of tokens is not asked over TLS"));
        }
        let scope =
            scope.unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository()));
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", &service);
        }
        let mut request = self.client.get(url);
        if let Some(value) = basic() {
            request = request.header(AUTHORIZATION, value);
        }
        let response = self.within(request.send()).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.denied()),
            status => return Err(self.failed(format!("its server of tokens answered {status}"))),
        }
        let body = zeroize::Zeroizing::new(self.body(response, DOCUMENT_BYTES).await?);
        bearer_header(&body).ok_or_else(|| self.failed("its server of tokens gave no token"))
    }

    async fn body(&self, mut response: Response, limit: u64) -> OciResult<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = self.within(response.chunk()).await? {
            body.extend_from_slice(&chunk);
            if body.len() as u64 > limit {
                let what = "a manifest or configuration in bytes";
                return Err(Error::TooLarge { what, key: "document_bytes", limit });
            }
        }
        Ok(body)
    }

    /// Waits for a step of the network, at most for the time without an answer.
    async fn within<T>(&self, step: impl Future<Output = reqwest::Result<T>>) -> OciResult<T> {
        let place = || format!("registry {}", self.reference.registry());
        tokio::select! {
            () = self.cancel.cancelled() => Err(Error::Cancelled),
            done = tokio::time::timeout(self.stall, step) => match done {
                Err(_) => Err(Error::Stalled { place: place(), secs: self.stall.as_secs() }),
                // A URL may be signed, which makes it a credential.
                Ok(done) => done.map_err(|error| self.failed(why(&error.without_url()))),
            },
        }
    }

    fn failed(&self, reason: impl Into<String>) -> Error {
        Error::Registry { registry: self.reference.registry().to_owned(), reason: reason.into() }
    }

    fn denied(&self) -> Error {
        Error::Denied {
            registry: self.reference.registry().to_owned(),
            repository: self.reference.repository().to_owned(),
        }
    }
}

fn client(plain: bool, ca_file: &Path) -> OciResult<Client> {
    // Fails when another part of the program was first, which is as good.
    let _there = ring::default_provider().install_default();
    let follow = redirect::Policy::custom(|attempt| {
        let from_tls = attempt.previous().iter().any(|url| url.scheme() == "https");
        if attempt.previous().len() > REDIRECTS {
            attempt.error("too many redirections")
        } else if from_tls && attempt.url().scheme() != "https" {
            attempt.error("a redirection away from TLS")
        } else {
            attempt.follow()
        }
    });
    let builder =
        Client::builder().user_agent(USER_AGENT).connect_timeout(CONNECT).redirect(follow);
    let builder = builder.tls_certs_merge(authorities(ca_file)?);
    // Listed by the operator as near: not asked by way of a proxy.
    let builder = if plain { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| Error::Registry {
        registry: "client".to_owned(),
        reason: error.to_string(),
    })
}

/// Certificates of the operator's own authorities. Blocks.
fn authorities(file: &Path) -> OciResult<Vec<Certificate>> {
    if file.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let no = |why: String| Error::Authority(format!("{}: {why}", file.display()));
    let mut pem = Vec::new();
    File::open(file)
        .and_then(|file| file.take(CA_BYTES).read_to_end(&mut pem))
        .map_err(|error| no(error.to_string()))?;
    match Certificate::from_pem_bundle(&pem) {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(no("it is not certificates in PEM".to_owned())),
    }
}

/// Reason of an error with its causes, which say what the error itself does not.
fn why(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text.chars().take(400).collect()
}
