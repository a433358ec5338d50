import { defineConfig } from "vitest/config";

export default defineConfig({ test: { globalSetup: "./mock_server.js" } });
