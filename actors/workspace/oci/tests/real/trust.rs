//! Who is trusted: signatures made by openssl, authorities of certificates, credentials.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hivekeep_oci::{Error, ImageOptions, Sha256Digest, SignatureRule};
use rcgen::{CertificateParams, KeyPair};
use ring::{rand::SystemRandom, signature as sig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    made::Made,
    stage::{Place, Registry, can_run, run},
};

const USER: &str = "ann:open sesame";
/// Line of htpasswd for it, by crypt(3).
const HTPASSWD: &str = "ann:$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";

/// Keys and signatures of openssl.
struct Signer(TempDir);

impl Signer {
    fn new(keys: &[&str]) -> Self {
        let signer = Self(TempDir::new().unwrap());
        for key in keys {
            let (private, public) = (signer.text(key), signer.public(key).display().to_string());
            run(
                "openssl",
                &["ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", &private],
            );
            run("openssl", &["ec", "-in", &private, "-pubout", "-out", &public]);
        }
        signer
    }

    fn text(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn public(&self, key: &str) -> PathBuf {
        self.0.path().join(format!("{key}.pub"))
    }

    /// Layer with a payload and its signature, and the payload.
    fn signed(&self, key: &str, name: &str, digest: &str) -> (Value, Vec<u8>) {
        let payload = json!({ "critical": {
            "identity": { "docker-reference": name },
            "image": { "docker-manifest-digest": digest },
            "type": "cosign container image signature",
        }, "optional": null });
        let payload = payload.to_string().into_bytes();
        let (file, out) = (self.text("payload"), self.text("signature"));
        fs::write(&file, &payload).unwrap();
        run("openssl", &["dgst", "-sha256", "-sign", &self.text(key), "-out", &out, &file]);
        let signature = STANDARD.encode(fs::read(&out).unwrap());
        (layer(&payload, &signature), payload)
    }

    /// Uploads signatures of an image with a digest.
    fn upload(&self, registry: &Registry, digest: &str, layers: &[(Value, Vec<u8>)]) {
        let folder = TempDir::new_in(self.0.path()).unwrap();
        let put = |bytes: &[u8]| {
            let blobs = folder.path().join("blobs/sha256");
            fs::create_dir_all(&blobs).unwrap();
            fs::write(blobs.join(Sha256Digest::of(bytes).hex()), bytes).unwrap();
        };
        let diff_ids: Vec<_> = layers.iter().map(|(layer, _)| layer["digest"].clone()).collect();
        let config = json!({ "architecture": "", "os": "", "config": {},
            "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config = config.to_string().into_bytes();
        layers.iter().for_each(|(_, payload)| put(payload));
        let layers: Vec<_> = layers.iter().map(|(layer, _)| layer.clone()).collect();
        let manifest = json!({ "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers });
        let manifest = manifest.to_string().into_bytes();
        put(&config);
        put(&manifest);
        let entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });
        fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
        fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
        let from = format!("oci:{}", folder.path().display());
        let tag = digest.replace(':', "-");
        let to = format!("docker://{}/lib/app:{tag}.sig", registry.host);
        let args = ["--insecure-policy", "copy", "--dest-tls-verify=false", "--preserve-digests"];
        run("skopeo", &[args.as_slice(), &[&from, &to]].concat());
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": Sha256Digest::of(bytes).to_string(),
        "size": bytes.len() })
}

fn layer(payload: &[u8], signature: &str) -> Value {
    let mut layer = descriptor("application/vnd.dev.cosign.simplesigning.v1+json", payload);
    layer["annotations"] = json!({ "dev.cosignproject.cosign/signature": signature });
    layer
}

#[tokio::test]
async fn an_image_is_taken_only_with_a_signature_of_it_by_a_key() {
    if !can_run() {
        return;
    }
    let (made, registry) = (Made::new(), Registry::start());
    registry.push(&made, &[]);
    let plain = ImageOptions { plain_http: vec![registry.host.clone()], ..Default::default() };
    let (reference, name) =
        (format!("{}/lib/app:1", registry.host), format!("{}/lib/app", registry.host));
    let image = Place::new(plain.clone()).pull(&reference, None).await.unwrap();
    let digest = image.digest.unwrap();

    let signer = Signer::new(&["ours", "theirs"]);
    let rule = SignatureRule { images: name.clone(), keys: vec![signer.public("ours")] };
    let signed =
        ImageOptions { signatures: vec![rule.clone()], require_signature: true, ..plain.clone() };
    let refusal = async |options: &ImageOptions, reference: &str| {
        let place = Place::new(options.clone());
        let error = place.pull(reference, None).await.expect_err("it was pulled");
        assert_eq!(fs::read_dir(place.store.root().join("objects")).unwrap().count(), 0);
        assert!(matches!(error, Error::Unsigned { .. } | Error::NotAllowed { .. }), "{error}");
        error.to_string()
    };
    let said = refusal(&signed, &reference).await;
    assert!(said.contains(&digest.replace(':', "-")), "{said}");

    let other = Sha256Digest::of(b"another image").to_string();
    let theirs = signer.signed("theirs", &name, &digest);
    let of_other = signer.signed("ours", &name, &other);
    let elsewhere = signer.signed("ours", "registry.example/lib/app", &digest);
    // The signature of one payload over another, which says what it should.
    let good = signer.signed("ours", &name, &digest);
    let stolen = of_other.0["annotations"]["dev.cosignproject.cosign/signature"].as_str().unwrap();
    let tampered = (layer(&good.1, stolen), good.1.clone());
    let unsigned = (layer(&good.1, ""), good.1.clone());
    for (bad, why) in [
        (&theirs, "is by a key of"),
        (&of_other, other.as_str()),
        (&elsewhere, "registry.example/lib/app"),
        (&tampered, "is by a key of"),
        (&unsigned, "is by a key of"),
    ] {
        signer.upload(&registry, &digest, std::slice::from_ref(bad));
        let said = refusal(&signed, &reference).await;
        assert!(said.contains(why), "{said} does not say {why}");
    }
    // No tag is trusted: what is pinned is looked at like the rest.
    refusal(&signed, &format!("{name}@{digest}")).await;

    signer.upload(&registry, &digest, &[theirs, of_other, tampered, good]);
    Place::new(signed.clone()).pull(&reference, None).await.unwrap();
    Place::new(signed.clone()).pull(&format!("{name}@{digest}"), None).await.unwrap();

    let nobody = ImageOptions { signatures: Vec::new(), ..signed.clone() };
    let said = refusal(&nobody, &reference).await;
    assert!(said.contains("no rule of"), "{said}");
    let layout = format!("oci:{}", made.image());
    assert!(Place::new(signed.clone()).pull(&layout, Some("app")).await.is_err());
    let no_key = SignatureRule { keys: vec![signer.text("ours").into()], ..rule };
    let no_key = ImageOptions { signatures: vec![no_key], ..signed };
    let error = Place::new(no_key).pull(&reference, None).await.unwrap_err();
    assert!(matches!(error, Error::SigningKey(_)), "a private key is none: {error}");
}

/// Certificate of its own authority for the loopback address.
struct Certificate {
    folder: TempDir,
    key: KeyPair,
    der: Vec<u8>,
}

impl Certificate {
    fn new() -> Self {
        let (folder, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let made = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("cert.pem"), made.pem()).unwrap();
        fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
        Self { folder, key, der: made.der().to_vec() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Part of a registry's configuration.
    fn tls(&self) -> String {
        let (certificate, key) = (self.path("cert.pem"), self.path("key.pem"));
        format!(", tls: {{certificate: {certificate:?}, key: {key:?}}}")
    }
}

fn auth_file(folder: &Path, host: &str, user: &str) -> PathBuf {
    let file = folder.join(format!("auth-{}.json", user.len()));
    let text = json!({ "auths": { host: { "auth": STANDARD.encode(user) } } });
    fs::write(&file, text.to_string()).unwrap();
    file
}

#[tokio::test]
async fn a_registry_with_tls_and_a_password_is_asked_with_the_hosts_credentials() {
    if !can_run() {
        return;
    }
    let (made, certificate) = (Made::new(), Certificate::new());
    let users = certificate.path("htpasswd");
    fs::write(&users, HTPASSWD).unwrap();
    let auth = format!("auth: {{htpasswd: {{realm: test, path: {users:?}}}}}");
    let registry = Registry::with(&certificate.tls(), &auth);
    registry.push(&made, &["--dest-creds", USER]);
    let reference = format!("{}/lib/app:1", registry.host);
    let folder = certificate.folder.path();
    let auth = |user: &str| auth_file(folder, &registry.host, user);
    let trusting = ImageOptions { ca_file: certificate.path("cert.pem"), ..Default::default() };
    let pull = async |options: ImageOptions| Place::new(options).pull(&reference, None).await;

    let good = ImageOptions { auth_file: auth(USER), ..trusting.clone() };
    pull(good.clone()).await.unwrap();
    for file in [PathBuf::new(), auth("ann:wrong")] {
        let error = pull(ImageOptions { auth_file: file, ..trusting.clone() }).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error}");
    }
    let other = Certificate::new();
    for ca_file in [PathBuf::new(), other.path("cert.pem")] {
        let error = pull(ImageOptions { ca_file, ..good.clone() }).await.unwrap_err();
        let told = matches!(error, Error::Registry { .. }) && !error.to_string().contains("sesame");
        assert!(told, "an unknown authority: {error}");
    }
    let none = ImageOptions { ca_file: other.path("key.pem"), ..good };
    let error = pull(none).await.unwrap_err();
    assert!(matches!(error, Error::Authority(_)), "{error}");
}

/// Server of tokens, which gives one to a user with the right password for what is asked.
struct TokenServer {
    address: String,
    asked: Arc<AtomicUsize>,
}

impl TokenServer {
    fn start(certificate: &Certificate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(AtomicUsize::new(0));
        let (key, der, count) =
            (certificate.key.serialize_der(), certificate.der.clone(), asked.clone());
        // Ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                answer(stream, &key, &der);
            }
        });
        Self { address, asked }
    }
}

fn answer(stream: TcpStream, key: &[u8], der: &[u8]) {
    let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
    let asked = lines.next().unwrap_or_default();
    let right = format!("Basic {}", STANDARD.encode(USER));
    let known = lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": ").map(|(_, value)| value.to_owned()))
        .any(|value| value == right);
    let url =
        reqwest::Url::parse(&format!("http://x{}", asked.split(' ').nth(1).unwrap())).unwrap();
    let scope = url.query_pairs().find(|(name, _)| name == "scope").map(|(_, it)| it.into_owned());
    let scope = scope.unwrap_or_default();
    let access: Vec<_> = match scope.split(':').collect::<Vec<_>>()[..] {
        [kind, name, actions] if known => {
            let actions: Vec<_> = actions.split(',').collect();
            vec![json!({ "type": kind, "name": name, "actions": actions })]
        }
        _ => Vec::new(),
    };
    let body = json!({ "token": token(key, der, &json!(access)) }).to_string();
    let status = if known { "200 OK" } else { "401 Unauthorized" };
    let length = body.len();
    let mut stream = &stream;
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let _gone = stream.write_all(format!("{head}{body}").as_bytes());
}

/// JSON Web Token signed by ES256.
fn token(key: &[u8], der: &[u8], access: &Value) -> String {
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(json!({ "typ": "JWT", "alg": "ES256", "x5c": [STANDARD.encode(der)] }));
    let claims = encode(json!({ "iss": "test", "aud": "registry", "sub": "ann", "jti": "1",
        "nbf": 0, "iat": 0, "exp": 4_102_444_800_u64, "access": access }));
    let random = SystemRandom::new();
    let way = &sig::ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = sig::EcdsaKeyPair::from_pkcs8(way, key, &random).unwrap();
    let text = format!("{header}.{claims}");
    let signature = pair.sign(&random, text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test]
async fn a_token_is_fetched_with_the_credentials_and_never_in_the_clear_for_tls() {
    if !can_run() {
        return;
    }
    let (made, certificate) = (Made::new(), Certificate::new());
    let server = TokenServer::start(&certificate);
    let bundle = certificate.path("cert.pem");
    let auth = format!(
        "auth: {{token: {{realm: \"http://{}/token\", service: registry, issuer: test, \
         rootcertbundle: {bundle:?}}}}}",
        server.address
    );
    let registry = Registry::with("", &auth);
    registry.push(&made, &["--dest-creds", USER]);
    let reference = |registry: &Registry| format!("{}/lib/app:1", registry.host);
    let folder = certificate.folder.path();
    let plain = ImageOptions { plain_http: vec![registry.host.clone()], ..Default::default() };
    let with = |user: &str, options: &ImageOptions, registry: &Registry| ImageOptions {
        auth_file: auth_file(folder, &registry.host, user),
        ..options.clone()
    };
    let good = Place::new(with(USER, &plain, &registry));
    good.pull(&reference(&registry), None).await.unwrap();
    for options in [plain.clone(), with("ann:wrong", &plain, &registry)] {
        let error = Place::new(options).pull(&reference(&registry), None).await.unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error}");
    }

    let secure = Registry::with(&certificate.tls(), &auth);
    let trusting = ImageOptions { ca_file: bundle, ..Default::default() };
    let place = Place::new(with(USER, &trusting, &secure));
    let before = server.asked.load(Ordering::SeqCst);
    let error = place.pull(&reference(&secure), None).await.unwrap_err();
    assert!(error.to_string().contains("not asked over TLS"), "{error}");
    assert_eq!(server.asked.load(Ordering::SeqCst), before, "it was asked all the same");
}
