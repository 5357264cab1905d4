//! Stores that earlier code wrote.
