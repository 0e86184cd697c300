//! What fails here fails with a sentence for people.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
