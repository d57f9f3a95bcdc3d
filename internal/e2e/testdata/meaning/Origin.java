import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/** Tomcat as it is by default, and with everything that reads more paths allowed. */
public class Origin {
  static class Handler extends HttpServlet {
    final String name;

    Handler(String name) {
      this.name = name;
    }

    @Override
    protected void service(HttpServletRequest req, HttpServletResponse resp) throws IOException {
      // To a servlet container /api/v/* holds for /api/v; a rule says so separately.
      boolean bare = name.equals("v") && req.getPathInfo() == null;
      resp.getWriter().print(bare ? "other" : name);
    }
  }

  public static void main(String[] args) throws Exception {
    Tomcat tomcat = new Tomcat();
    tomcat.setBaseDir(".");
    tomcat.setPort(Integer.parseInt(args[0]));
    tomcat.getConnector().setProperty("address", "127.0.0.1");
    for (int i = 1; i < args.length; i++) {
      Connector lax = new Connector();
      lax.setPort(Integer.parseInt(args[i]));
      lax.setProperty("address", "127.0.0.1");
      lax.setProperty("relaxedPathChars", "\\|<>[]{}^`\"");
      lax.setEncodedSolidusHandling(i == 1 ? "decode" : "passthrough");
      lax.setAllowBackslash(true);
      tomcat.getService().addConnector(lax);
    }
    var context = tomcat.addContext("", null);
    String[][] handlers = {{"v", "/api/v/*"}, {"login", "/login"}, {"root", ""}, {"other", "/"}};
    for (String[] h : handlers) {
      Tomcat.addServlet(context, h[0], new Handler(h[0]));
      context.addServletMappingDecoded(h[1], h[0]);
    }
    tomcat.start();
    tomcat.getServer().await();
  }
}
