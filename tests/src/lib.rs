//! The lab: clusters as network namespaces; demo, peers, end-to-end tests.
