//! Tokenizers and chat templates of the Hugging Face world behind a small C ABI (`onw_text_native.h`).
pub mod ffi;
pub mod stream;
pub mod tokenizer;
