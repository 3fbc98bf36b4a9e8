//! Copies a file between machines over TCP with TLS, and shows a progress bar.
//!
//! `copy certificate DIR` makes a certificate, `copy receive ADDRESS FILE DIR` waits for the file,
//! and `copy send FILE ADDRESS DIR` sends it; ADDRESS is `tcp://HOST:PORT`. Both sides need DIR.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use indicatif::ProgressBar;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use selvedge_service::{ByteStream, Event, Listener, Options, connect_with};

/// The name in the certificates of both sides.
const NAME: &str = "copy.example";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["certificate", dir] => make_certificate(Path::new(dir)),
        ["receive", address, file, dir] => receive(address, file, &options(Path::new(dir))),
        ["send", file, address, dir] => send(file, address, &options(Path::new(dir))),
        _ => Err("use: copy certificate DIR | receive ADDRESS FILE DIR | send FILE ADDRESS DIR")?,
    }
}

fn options(dir: &Path) -> Options {
    let files = ["certificate.pem", "key.pem", "authority.pem"].map(|file| dir.join(file));
    let [certificate, key, authority] = files;
    Options::new()
        .tls(certificate, key, authority)
        .tls_name(NAME)
}

fn receive(address: &str, file: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind_with(address, options)?;
    println!("listening at {}", listener.addresses()?.join(","));
    loop {
        if let Event::Connected(peer) = listener.event().wait()? {
            let mut stream: ByteStream = peer.into_stream();
            // A sender that dies is an error here, not the end of a shorter file.
            let len = std::io::copy(&mut stream, &mut File::create(file)?)?;
            stream.finish()?;
            println!("received {len} bytes");
            return Ok(());
        }
    }
}

fn send(file: &str, address: &str, options: &Options) -> Result<(), Box<dyn Error>> {
    let file = File::open(file)?;
    let progress = ProgressBar::new(file.metadata()?.len());
    let mut stream = connect_with(address, options).wait()?.into_stream();
    std::io::copy(&mut progress.wrap_read(file), &mut stream)?;
    stream.finish()?;
    // The receiver finishes its direction when the file is complete.
    std::io::copy(&mut stream, &mut std::io::sink())?;
    progress.finish();
    println!("sent {} bytes", progress.position());
    Ok(())
}

fn make_certificate(dir: &Path) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new([NAME.to_owned()])?.signed_by(&key, &authority)?;
    std::fs::write(dir.join("authority.pem"), authority.pem())?;
    std::fs::write(dir.join("certificate.pem"), certificate.pem())?;
    Ok(std::fs::write(dir.join("key.pem"), key.serialize_pem())?)
}
